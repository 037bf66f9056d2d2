"""Names of actors and processes as values: they print, compare and parse, and create nothing."""

from __future__ import annotations

import os
import re
from functools import total_ordering
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from monarch._runtime import Address

_UID = re.compile(r"[A-Za-z0-9_.-]*(?:<[0-9a-f]{16}>)?")
_ADDRESS = re.compile(r"(?P<actor>.+)\.(?P<proc>[^.@]+)@(?P<addr>.+)", re.DOTALL)
_NUMBERED = re.compile(r"(?P<label>.*)-(?P<number>\d+)", re.DOTALL)


@total_ordering
class _Name:
    """A value that is what it prints."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if type(other) is type(self) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._text < other._text if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)


class Uid(_Name):
    """The identity of something in a system of actors, for naming services.

    An instance has a random number, and prints like `worker<0123456789abcdef>` or `<0123456789abcdef>`; a singleton is
    its label.
    """

    __slots__ = ()

    @staticmethod
    def anonymous() -> Uid:
        """A new instance without a label."""
        return Uid.instance()

    @staticmethod
    def instance(label: str | None = None) -> Uid:
        """A new instance. ValueError for a label with other signs than letters, digits, `_`, `-` and `.`."""
        if label is not None and not re.fullmatch(r"[A-Za-z0-9_.-]+", label):
            raise ValueError(f"a label has letters, digits, '_', '-' and '.', and {label!r} has others")
        return Uid(f"{label or ''}<{os.urandom(8).hex()}>")

    @staticmethod
    def from_string(uid: str) -> Uid:
        """What str() printed; ValueError for anything else."""
        if not uid or _UID.fullmatch(uid) is None:
            raise ValueError(f"{uid!r} is no uid: they look like name<0123456789abcdef>, or name")
        return Uid(uid)

    @property
    def label(self) -> str | None:
        return self._text.partition("<")[0] or None

    @property
    def is_instance(self) -> bool:
        return self._text.endswith(">")

    @property
    def is_singleton(self) -> bool:
        return not self.is_instance


class ProcId(_Name):
    """The identity of a process, for naming services: that of a uid."""

    __slots__ = ()

    def __init__(self, uid: Uid) -> None:
        super().__init__(str(uid))

    @staticmethod
    def from_string(proc_id: str) -> ProcId:
        """What str() printed; ValueError for anything else."""
        return ProcId(Uid.from_string(proc_id))

    @property
    def uid(self) -> Uid:
        return Uid(self._text)

    @property
    def label(self) -> str | None:
        return self.uid.label

    def __reduce__(self) -> Any:
        return (ProcId, (self.uid,))


class ActorId(NamedTuple):
    """Where an actor is; prints like `<actor>.<proc>@<addr>`.

    Attributes:
        addr: of the actor's host.
        proc_name: of its process, on that host.
        uid: its own in that process: `trainer-7`, or a name alone for the one actor that has it.
    """

    addr: str
    proc_name: str
    uid: str

    @staticmethod
    def of(address: Address, name: str) -> ActorId:
        """The actor at an address of the runtime."""
        host, proc, incarnation, actor = address
        proc_name = f"proc{proc}" if incarnation <= 1 else f"proc{proc}-{incarnation}"
        return ActorId(host.hex()[:12], proc_name, name if actor == 1 else f"{name}-{actor & 0xFFFFFFFF}")

    @staticmethod
    def from_string(text: str) -> ActorId:
        """What str() printed; ValueError for anything else."""
        found = _ADDRESS.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no address of an actor: they look like actor.proc@addr")
        return ActorId(found["addr"], found["proc"], found["actor"])

    @property
    def actor_name(self) -> str:
        """The name given at the spawn."""
        found = _NUMBERED.fullmatch(self.uid)
        return self.uid if found is None else found["label"]

    @property
    def label(self) -> str:
        return self.actor_name

    @property
    def proc_label(self) -> str:
        return self.proc_name

    @property
    def pid(self) -> str:
        """The uid, by an old name; not the process's id."""
        return self.uid

    @property
    def proc_id(self) -> str:
        return f"{self.proc_name}@{self.addr}"

    @property
    def is_root(self) -> bool:
        """Whether it is the only one of its name, as the client is."""
        return self.actor_name == self.uid

    def __str__(self) -> str:
        return f"{self.uid}.{self.proc_id}"

    def __repr__(self) -> str:
        return str(self)


class Creator(NamedTuple):
    """Who spawned an actor, and who spawned that one, and so on to the root.

    Attributes:
        rank, proc_mesh, proc, name, class_name: as those of `Instance`.
        creator: its own; None for the root.
    """

    rank: Any
    proc_mesh: Any
    proc: Any
    name: str
    class_name: str | None
    creator: Creator | None

    def __str__(self) -> str:
        coordinates = repr(self.rank) if len(self.rank.extent) else ""
        who = self.name if self.class_name is None else f"{self.class_name} {self.name}{coordinates}"
        return f"<{who}>" if self.creator is None else f"{self.creator}.<{who}>"

    def __repr__(self) -> str:
        return str(self)
