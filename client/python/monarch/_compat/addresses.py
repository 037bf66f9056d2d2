"""An actor's address as text."""

from __future__ import annotations

import dataclasses
import re

_SCHEMES = {"local": "inproc", "unix": "ipc"}
_ADDRESS = re.compile(r"(?P<actor>[^.@]+)\.(?P<proc>[^@]+)@(?P<addr>.+)")


def _url(addr: str) -> str:
    """`local:0` and the like as `inproc://0`."""
    scheme, colon, rest = addr.partition(":")
    if not colon:
        raise ValueError(f"not an address: {addr!r}; an example is 'tcp://host:port'")
    return f"{_SCHEMES.get(scheme, scheme)}://{rest.removeprefix('//')}"


@dataclasses.dataclass(frozen=True)
class ActorAddr:
    """Where an actor is: printed as `<actor>.<proc>@<address>`."""

    addr: str
    proc_name: str
    actor_name: str

    def __init__(self, *, addr: str, proc_name: str, actor_name: str) -> None:
        object.__setattr__(self, "addr", _url(addr))
        object.__setattr__(self, "proc_name", proc_name)
        object.__setattr__(self, "actor_name", actor_name)

    @staticmethod
    def from_string(actor_addr_str: str) -> ActorAddr:
        found = _ADDRESS.fullmatch(actor_addr_str)
        if found is None:
            raise ValueError(
                f"not an actor's address: {actor_addr_str!r}; an example is 'actor.proc@tcp://host:1'"
            )
        return ActorAddr(addr=found["addr"], proc_name=found["proc"], actor_name=found["actor"])

    @property
    def uid(self) -> str:
        return self.actor_name

    pid = uid

    @property
    def label(self) -> str:
        return self.actor_name

    @property
    def proc_label(self) -> str:
        return self.proc_name

    @property
    def proc_id(self) -> str:
        return f"{self.proc_name}@{self.addr}"

    @property
    def is_root(self) -> bool:
        """Whether it is named, and not one of many instances."""
        return "<" not in self.actor_name

    def __str__(self) -> str:
        return f"{self.actor_name}.{self.proc_id}"
