"""Who runs here: the current actor, and the message it handles."""

from __future__ import annotations

import contextlib
import contextvars
from typing import TYPE_CHECKING, Any

from monarch._actor.future import running_loop
from monarch._actor.identity import ActorId, Creator
from monarch._actor.shape import Extent, Point

if TYPE_CHECKING:
    from monarch._actor.actor_runner import ActorRunner
    from monarch._actor.failure import FailureEvent
    from monarch._actor.owned import Owned
    from monarch._actor.proc_mesh import ProcMesh
    from monarch._runtime import Address, Message, Runtime

NO_DIMENSIONS = Extent([], [])


class Instance:
    """One actor of this process: its identity, and what it owns. The code outside actors is one too, the root.

    Attributes:
        name: given at the spawn; "root" for the root.
        class_name: "module.Class"; None for the root.
        creator: who spawned it, with the chain of spawners; None for the root.
        rank: its place in the mesh as spawned, which never changes; without dimensions for the root.
        incarnation: that of its mesh in which it was made: 1, and more if a restart policy made it again.
    """

    def __init__(self, runtime: Runtime, address: Address, info: dict[str, Any]) -> None:
        self.runtime = runtime
        self.address = address
        self.actor = address[3]
        self.name: str = info["name"]
        self.class_name: str | None = info.get("class")
        self.creator: Creator | None = info.get("creator")
        extent = Extent(info.get("labels", []), info.get("sizes", []))
        self.incarnation: int = info.get("incarnation", 1)
        self.rank = Point(info.get("rank", 0), extent)
        self.owned: list[Owned] = []  # by own(); left by release()
        self.runner: ActorRunner | None = None
        self.mocks: dict[Any, Any] = {}  # that were in force where it was spawned
        self._failed: set[tuple[Any, ...]] = set()  # of what it owns: whose failure it was told
        self._proc_mesh: ProcMesh | None = info.get("proc_mesh")
        self._proc: ProcMesh | None = None
        owner_label: str = info.get("owner_label", "")
        coordinates = repr(self.rank) if len(extent) else ""
        self.label = (
            f"{owner_label}.<{self.class_name} {self.name}{coordinates}>" if owner_label else "<root>"
        )

    @property
    def actor_id(self) -> ActorId:
        return ActorId.of(self.address, self.name if self.class_name else "client")

    @property
    def proc_id(self) -> str:
        return self.actor_id.proc_id

    @property
    def proc(self) -> ProcMesh:
        """The process that runs this actor, as a mesh of one."""
        if self._proc is None:
            from monarch._actor.host_mesh import proc_mesh_of

            self._proc = proc_mesh_of(self, self._proc_mesh)
        return self._proc

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
    @property
    def _children(self) -> list[Any] | None:
        """The meshes that it spawned and that are not stopped, in the order of their spawns; None for none."""
        return [owned.mesh for owned in list(self.owned) if owned.mesh is not None] or None

    def _as_rust(self) -> Instance:
        return self

    def stop(self, reason: str | None = None) -> None:
        """Stops this actor when the present message is done."""
        if self.runner is None:
            raise RuntimeError("only an actor can be stopped; this is the client")
        self.runner.stop_soon(reason or "stopped by itself")

    def release(self, owned: Owned) -> None:
        """It is no longer among what the instance owns, if it was. Thread-safe."""
        with contextlib.suppress(ValueError):
            self.owned.remove(owned)

    def as_creator(self) -> Creator:
        """What those that it spawns know of it."""
        return Creator(self.rank, self.proc_mesh, self.proc, self.name, self.class_name, self.creator)

    def own(self, owned: Owned) -> None:
        """From now on this instance hears of its failures."""
        self.owned.append(owned)
        loop = running_loop() if self.class_name is None else None
        if loop is not None:
            from monarch._actor.fault_hook import remember_loop

            remember_loop(loop)

    def is_news(self, event: FailureEvent) -> bool:
        """Whether it is the first failure of that member of what this actor owns. On the actor's thread."""
        who = event.as_dict().get("actor")
        if who is None or who[1] == 0:
            return True
        told = who in self._failed
        self._failed.add(who)
        return not told

    def __str__(self) -> str:
        return self.label

    __repr__ = __str__


class Context:
    """The current actor and the message it handles."""

    __slots__ = ("_call", "_endpoint", "_extent", "_kept", "_rank", "actor_instance")

    def __init__(
        self,
        actor_instance: Instance,
        rank: int = 0,
        extent: Extent = NO_DIMENSIONS,
        endpoint: str = "",
    ) -> None:
        self.actor_instance = actor_instance
        self._rank = rank
        self._extent = extent
        self._endpoint = endpoint
        self._call: Message | None = None  # while its endpoint runs
        self._kept = False  # somebody may look at it after the call, and so it is not for another one

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits any more for the answer of the endpoint that runs.

        Its caller cancelled the future, or the time limit of the call has passed. Nothing else happens to the endpoint:
        it looks where it can stop. False outside of endpoints, for broadcasts and for ports. May be asked in any
        thread: `context()` in the endpoint, `cancelled` where the work is done.
        """
        call, runner = self._call, self.actor_instance.runner
        return call is not None and runner is not None and runner.mailbox.is_cancelled(call)

    async def wait_cancelled(self) -> None:
        """Returns when `cancelled` is true, or the endpoint has ended. In the loop of an actor with async endpoints."""
        import asyncio

        runner = self.actor_instance.runner
        if runner is None or runner.cancel_waiters is None:
            raise RuntimeError("wait_cancelled() is for async endpoints; elsewhere look at `cancelled`")
        while self._call is not None and not self.cancelled:
            news = asyncio.get_running_loop().create_future()
            runner.cancel_waiters.add(news)
            try:
                await news
            finally:
                runner.cancel_waiters.discard(news)

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
    found = current.get() or client_context.get()
    found._kept = True
    return found


def current_endpoint() -> str:
    """What the current actor is in; "" between its messages, and in what concerns its life."""
    here = current.get()
    runner = here.actor_instance.runner if here is not None else None
    if here is None or runner is None:
        return ""
    if runner.construction is not None:
        return "__init__"
    return here._endpoint if runner.in_flight else ""


def current_rank() -> Point:
    """Where this actor is in the mesh that was called."""
    return context().message_rank


def current_size() -> dict[str, int]:
    """The sizes of the mesh that was called."""
    return dict(context().message_rank.extent)


def current_actor_name() -> str:
    """The current actor's address, for people."""
    return str(context().actor_instance.actor_id)
