"""A mesh of actors: what spawn() returns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from monarch import _runtime
from monarch._actor.actor import Actor, check_class
from monarch._actor.answers import collect_done, failure_error
from monarch._actor.endpoint import Endpoint, EndpointProperty, NotAnEndpoint
from monarch._actor.future import Future, check_timeout
from monarch._actor.interrupt import acquire_interruptibly
from monarch._actor.members import Members
from monarch._actor.mesh_trait import MeshTrait
from monarch._actor.owned import stop_actor_s, warn_late
from monarch._actor.pickling import Reference
from monarch._actor.readiness import Readiness
from monarch._actor.receiver import Receiver
from monarch._actor.shape import Shape, Slice
from monarch._actor.turns import Turns

if TYPE_CHECKING:
    from monarch._actor.context import Instance
    from monarch._actor.creation import Creation
    from monarch._actor.failure import FailureEvent
    from monarch._actor.owned import Stopping
    from monarch._actor.proc_mesh import ProcMesh
    from monarch._actor.proc_mesh_core import ProcMeshCore
    from monarch._actor.restarter import Restarter
    from monarch._runtime import Address, Inbox, Proc, Targets

T = TypeVar("T", bound=Actor)


def class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


class ActorMeshCore:
    """What a spawned mesh and all its slices share."""

    is_procs = False

    def __init__(self, name: str, cls: type, actor: int, readiness: Readiness, owner_label: str) -> None:
        self.name = name
        self.cls = cls
        self.class_name = class_name(cls)
        self.actor = actor  # the first id of each member
        self.readiness = readiness
        self.owner_label = owner_label
        self.members = Members([])
        self.turns = Turns()  # for what changes the members, or ends them
        self.creation: Creation | None = None  # with the spawner only
        self.restarter: Restarter | None = None  # with the spawner, if it gave a policy
        self.created: Future[None] | None = None  # with the spawner only: all members have mailboxes
        self.owner: Instance | None = None
        self.owner_address: Address | None = None
        self.stopped: dict[str, Any] | None = None
        self.running: set[int] = set()  # ranks that were asked to stop, and did not say that they have
        self._stop_lock = threading.Lock()
        self._stopping: Stopping = lambda deadline: None
        self.endpoints: dict[str, EndpointProperty] = {}
        self.proc_mesh: ProcMesh | None = None  # that it was spawned on
        self.mesh: ActorMesh[Any] | None = None  # what the spawner was given

    def set_procs(self, procs: Iterable[Proc]) -> None:
        """In rank order; before the mesh is ready."""
        self.members.set_all([(*proc, self.actor) for proc in procs])

    def watch_creation(self, owner: Instance, answers: Inbox, count: int) -> None:
        """`answers` gets one from each member once it has a mailbox."""

        def error(event: FailureEvent) -> BaseException:
            return failure_error(event, None, self.owner_label)

        self.owner = owner
        self.owner_address = owner.address
        self.created = Future._from_receiver(Receiver(owner.runtime, answers), collect_done(count, error))

    def begin_stop(self, reason: str) -> Stopping:
        """Asks all members to end; once: all who ask wait for the same."""
        with self._stop_lock:
            if self.stopped is None and self.readiness.error is None and self.owner is not None:
                self._stopping = self._ask_to_stop(reason)
            return self._stopping

    def _ask_to_stop(self, reason: str) -> Stopping:
        self.stopped = self._stopped_by(reason)
        self._restart_no_more()
        asked = Readiness()
        stopping: list[Callable[[float], set[int]]] = []

        def ask() -> None:
            self._let_go()
            stopping.append(self.stop_members(self.members.addresses, reason))
            asked.set_ready()

        # Behind the creation, which may be still to come, and behind a restart.
        self.readiness.post(lambda: self.turns.post(ask), asked.set_error)

        def wait(deadline: float) -> None:
            asked.wait_over(max(0.0, deadline - time.monotonic()))
            for wait_for_members in stopping:
                self.running = wait_for_members(deadline)

        return wait

    def _restart_no_more(self) -> None:
        if self.restarter is not None:
            self.restarter.quit()

    def tell_no_more(self) -> None:
        """Of deaths of its processes, which end on purpose."""
        if self.creation is not None:
            self.creation.tell_no_more()

    def _let_go(self) -> None:
        """Its end is no failure from now on, and what waits for a restart fails. In turn."""
        self._restart_no_more()  # The creation may have made the restarter since.
        self.tell_no_more()
        members = self.members
        members.supervised = False
        members.lose_all_down(self.stopped or {})

    def stop_members(self, addresses: list[Address], reason: str) -> Callable[[float], set[int]]:
        """Asks actors to end; the returned function waits for them, at most until a monotonic time, and returns the
        places of those that have not ended."""
        assert self.owner is not None
        runtime, caller = self.owner.runtime, self.owner.actor
        count = len(addresses)
        call = runtime.open_call(caller, count)
        targets = _runtime.Targets(addresses, range(count))
        meta = _runtime.encode_value({"reason": reason})
        runtime.send(caller, _runtime.STOP_ACTOR, targets, _runtime.NONE, meta, [], call)
        running = set(range(count))
        reading = threading.Lock()  # An inbox has one reader at a time.

        def wait(deadline: float) -> set[int]:
            if not acquire_interruptibly(reading, deadline):
                return running
            try:
                while running and runtime.wait(call, max(0.0, deadline - time.monotonic())):
                    answer = call.try_pop()
                    if answer is None:  # The session is over.
                        running.clear()
                        break
                    running.discard(answer.rank)
            finally:
                reading.release()
            return running

        return wait

    def _stopped_by(self, reason: str) -> dict[str, Any]:
        return {"kind": "stopped", "mesh": self.name, "actor_class": self.class_name, "reason": reason}

    def is_on(self, procs: ProcMeshCore) -> bool:
        return self.proc_mesh is not None and self.proc_mesh._core is procs

    def disown(self, reason: str) -> None:
        """Somebody ends the actors' processes on purpose, or has."""
        if self.stopped is None:
            self.stopped = self._stopped_by(reason)
        self._restart_no_more()
        # Behind the creation, which may be still to come, and behind a restart.
        self.readiness.post(lambda: self.turns.post(self._let_go), lambda error: None)

    def stop(self, reason: str, limit_s: float | None = None) -> None:
        if self.owner is not None:
            self.owner.release(self)
        limit_s = stop_actor_s() if limit_s is None else limit_s
        self.readiness.wait()
        self.begin_stop(reason)(time.monotonic() + limit_s)
        if self.running:
            warn_late(
                f"actors of mesh {self.name!r} did not stop within {limit_s:g} s, for they are still at work: "
                f"ranks {sorted(self.running)}. They stop when they are through, or with their processes"
            )


class ActorMesh(Reference, MeshTrait, Generic[T]):
    """Actors of one class, one in each process of a mesh. Its endpoints are attributes."""

    def __init__(self, core: ActorMeshCore, shape: Shape, *, spawned_here: bool = False) -> None:
        core.endpoints = core.endpoints or check_class(core.cls, _RESERVED)
        self._core = core
        self._shape = shape
        self._spawned_here = spawned_here
        self._prepared: tuple[int, Targets | None] = (-1, None)  # and the epoch they are of

    # --- the mesh as its endpoints see it ---

    def _mesh_name(self) -> str:
        return self._core.name

    def _owner_label(self) -> str:
        return self._core.owner_label

    def _class_name(self) -> str:
        return self._core.class_name

    def _shape_now(self) -> Shape:
        return self._shape

    def _readiness(self) -> Readiness:
        return self._core.readiness

    def _stop_event(self) -> dict[str, Any] | None:
        return self._core.stopped

    def _owner_is_gone(self) -> bool:
        from monarch._actor.process import process

        owner = self._core.owner_address
        return owner is not None and process().runtime.death_of(owner[:3]) is not None

    def _members(self) -> Members:
        return self._core.members

    def _targets(self) -> Targets | None:
        members = self._core.members
        epoch, ranks = members.epoch, list(self._shape.ndslice)
        if members.down and not members.down.keys().isdisjoint(ranks):
            return None
        addresses = [members.addresses[rank] for rank in ranks]
        targets = _runtime.Targets(addresses, range(len(addresses)))
        self._prepared = (epoch, targets)
        return targets

    def _targets_now(self) -> Targets | None:
        core = self._core
        if core.stopped is not None or not core.readiness.ready:
            return None
        epoch, targets = self._prepared
        return targets if epoch == core.members.epoch else self._targets()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_core" not in self.__dict__:
            raise AttributeError(name)
        cls = self._core.cls
        declared = self._core.endpoints.get(name)
        if declared is not None:
            found: Endpoint[..., Any] = Endpoint(self, name, declared)
            self.__dict__[name] = found
            return found
        if hasattr(cls, name):
            return NotAnEndpoint(self, cls.__qualname__, name, getattr(cls, name))
        if name == "incarnation":
            return self._core.members.incarnation
        if name == "incarnations":
            return [self._core.members.incarnations[rank] for rank in self._shape.ndslice]
        raise AttributeError(f"{cls.__qualname__} has no attribute {name!r}")

    # --- the mesh as an array ---

    @property
    def _ndslice(self) -> Slice:
        return self._shape.ndslice

    @property
    def _labels(self) -> Sequence[str]:
        return self._shape.labels

    def _new_with_shape(self, shape: Shape) -> ActorMesh[T]:
        return ActorMesh(self._core, shape)

    # --- life ---

    @property
    def initialized(self) -> Future[None]:
        """Done when the actors exist in their processes; their `__init__` may still run."""
        core = self._core

        def wait() -> None:
            if core.created is not None:
                core.created.get()
            else:
                core.readiness.wait()

        # One for each who asks: whoever cancels it leaves the creation alone.
        return Future._from_function(wait)

    def stop(self, reason: str = "stopped by client", *, timeout: float | None = None) -> Future[None]:
        """Stops the actors: first what they own, then their `__cleanup__(None)`. Done when all are gone.

        Those that are still at work after `timeout` seconds (None: `stop_actor_timeout`) are named in a warning, and no
        longer waited for. ValueError for a negative, infinite or NaN one.
        """
        limit_s = None if timeout is None else check_timeout(timeout)
        if self._core.owner is None:
            raise NotImplementedError(
                "Cannot call stop on an ActorMeshRef: only the mesh that spawn() returned can be"
            )
        if not self._spawned_here:
            return Future._from_error(
                NotImplementedError(
                    "Cannot call stop on an ActorMeshRef: this is a slice of the mesh that was spawned"
                )
            )
        core = self._core
        return Future._from_function(lambda: core.stop(reason, limit_s), eager=True)

    @property
    def _proc_mesh(self) -> ProcMesh | None:
        """The processes that the mesh was spawned on."""
        return self._core.proc_mesh

    @property
    def _name(self) -> Future[str]:
        return Future._from_value(f"{self._core.name}-{self._core.actor}")

    def __repr__(self) -> str:
        return f"ActorMesh(class={self._core.class_name}, name={self._core.name!r}, shape={self._shape})"

    def __reduce__(self) -> Any:
        core = self._core
        core.readiness.wait_to_refer()
        if core.created is not None and not core.created.is_settled():
            # Whoever gets the reference may call before the spawner's own messages have made the actors.
            core.created._wait(None)
        described = (
            core.name,
            core.cls,
            core.actor,
            core.members,
            core.owner_label,
            core.owner_address,
        )
        return (_rebuild, (*described, self._shape, core.proc_mesh))


_RESERVED = frozenset(name for name in dir(ActorMesh) if not name.startswith("__"))


def _rebuild(
    name: str,
    cls: type,
    actor: int,
    members: Members,
    owner_label: str,
    owner_address: Address | None,
    shape: Shape,
    proc_mesh: ProcMesh | None,
) -> ActorMesh[Any]:
    core = ActorMeshCore(name, cls, actor, Readiness.of_reference(), owner_label)
    core.members = members
    core.proc_mesh = proc_mesh
    core.owner_address = owner_address
    return ActorMesh(core, shape)
