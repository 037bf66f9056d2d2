"""Who runs here: the current actor, and the message it handles."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any

from monarch._actor.shape import Extent, Point

if TYPE_CHECKING:
    from monarch._actor.actor_runner import ActorRunner
    from monarch._actor.host_mesh import HostMesh
    from monarch._actor.owned import Owned
    from monarch._actor.proc_mesh import ProcMesh
    from monarch._runtime import Address, Runtime

NO_DIMENSIONS = Extent([], [])


class ActorId:
    """Where an actor is: printed like `name-3.proc7@1a2b3c4d`."""

    __slots__ = ("actor_name", "address")

    def __init__(self, address: Address, actor_name: str) -> None:
        self.address = address
        self.actor_name = actor_name

    @property
    def proc_name(self) -> str:
        return f"proc{self.address[1]}"

    @property
    def proc_id(self) -> str:
        return f"{self.proc_name}@{self.address[0].hex()[:8]}"

    @property
    def label(self) -> str:
        return self.actor_name

    @property
    def pid(self) -> int:
        """The actor's number in its process."""
        return self.address[3]

    @property
    def is_root(self) -> bool:
        return self.address[3] == 1

    def __str__(self) -> str:
        return f"{self.actor_name}-{self.address[3] & 0xFFFFFFFF}.{self.proc_id}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorId) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def __reduce__(self) -> Any:
        return (ActorId, (self.address, self.actor_name))


class Instance:
    """One actor of this process: its identity, and what it owns. The code outside actors is one too, the root."""

    def __init__(self, runtime: Runtime, address: Address, info: dict[str, Any]) -> None:
        self.runtime = runtime
        self.address = address
        self.actor = address[3]
        self.name: str = info.get("name", "client")
        self.class_name: str = info.get("class", "")
        self.creator: str = info.get("owner_label", "")
        extent = Extent(info.get("labels", []), info.get("sizes", []))
        self.rank = Point(info.get("rank", 0), extent)
        self.owned: list[Owned] = []
        self.runner: ActorRunner | None = None
        self.mocks: dict[Any, Any] = {}  # that were in force where it was spawned
        self._proc_mesh: ProcMesh | None = info.get("proc_mesh")
        self.host_mesh: HostMesh | None = info.get("host_mesh")
        coordinates = repr(self.rank) if len(extent) else ""
        self.label = (
            f"{self.creator}.<{self.class_name} {self.name}{coordinates}>" if self.creator else "<root>"
        )

    @property
    def actor_id(self) -> ActorId:
        return ActorId(self.address, self.name)

    @property
    def proc_id(self) -> str:
        return self.actor_id.proc_id

    @property
    def proc(self) -> ProcMesh:
        """The process that runs this actor, as a mesh of one."""
        from monarch._actor.proc_mesh import own_proc_mesh

        return own_proc_mesh(self)

    @property
    def proc_mesh(self) -> ProcMesh:
        """The mesh that the actor was spawned on."""
        return self._proc_mesh if self._proc_mesh is not None else self.proc

    def abort(self, reason: str | None = None) -> None:
        """Fails this actor when the present message is done; a reply may still go out."""
        if self.runner is None:
            raise RuntimeError("only an actor can be aborted; this is the client")
        self.runner.abort(f"actor explicitly aborted due to: {reason or '(no reason provided)'}")

    kill = abort

    # For programs that hand the instance to the other side of another implementation, and that clean up by hand.
    _children: list[Any] | None = None

    def _as_rust(self) -> Instance:
        return self

    def stop(self, reason: str | None = None) -> None:
        """Stops this actor when the present message is done."""
        if self.runner is None:
            raise RuntimeError("only an actor can be stopped; this is the client")
        self.runner.stop_soon(reason or "stopped by itself")

    def __str__(self) -> str:
        return self.label


class Context:
    """The current actor and the message it handles."""

    __slots__ = ("_extent", "_rank", "actor_instance")

    def __init__(self, actor_instance: Instance, rank: int = 0, extent: Extent = NO_DIMENSIONS) -> None:
        self.actor_instance = actor_instance
        self._rank = rank
        self._extent = extent

    @property
    def message_rank(self) -> Point:
        """Where the receiver is in the mesh that the sender called."""
        return Point(self._rank, self._extent)


current: contextvars.ContextVar[Context | None] = contextvars.ContextVar("monarch_context", default=None)


class ClientContext:
    """The context of the code outside actors; the first use starts the client."""

    _val: Context | None = None  # while this process has a client

    def get(self) -> Context:
        if self._val is not None:
            return self._val
        from monarch._actor.process import process

        return process().default_context()

    def try_get(self) -> Context | None:
        """None while there is no client in this process."""
        return self._val


client_context = ClientContext()


def context() -> Context:
    """The current actor's context; outside actors the client's, which the first call starts."""
    return current.get() or client_context.get()


def current_rank() -> Point:
    """Where this actor is in the mesh that was called."""
    return context().message_rank


def current_size() -> dict[str, int]:
    """The sizes of the mesh that was called."""
    return dict(context().message_rank.extent)


def current_actor_name() -> str:
    """The current actor's address, for people."""
    return str(context().actor_instance.actor_id)
