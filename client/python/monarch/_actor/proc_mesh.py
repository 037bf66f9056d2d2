"""A mesh of processes, on which actors are spawned."""

from __future__ import annotations

import contextvars
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from monarch._actor import mock, pickling
from monarch._actor.actor import Actor, check_class
from monarch._actor.actor_mesh import _RESERVED, ActorMesh, ActorMeshCore
from monarch._actor.context import Instance, context
from monarch._actor.creation import Creation, RestartableActors
from monarch._actor.errors import ActorError
from monarch._actor.future import Future, check_timeout
from monarch._actor.hang import hung_after_ms
from monarch._actor.members import Members
from monarch._actor.mesh_trait import MeshTrait, point_shape
from monarch._actor.proc_mesh_core import ProcMeshCore
from monarch._actor.readiness import Readiness
from monarch._actor.restart_policy import Restart
from monarch._actor.restarter import Restarter
from monarch._actor.shape import Region, Shape, Slice
from monarch._actor.signature import signature_of
from monarch._config.layers import layers

if TYPE_CHECKING:
    from monarch._actor.host_mesh import HostMesh
    from monarch._runtime import Proc

P = ParamSpec("P")
T = TypeVar("T", bound=Actor)

_LEVEL_INFO = 20  # logging.INFO, without importing it
_LEVEL_MAX = 255


class ProcMesh(pickling.Reference, MeshTrait):
    """Processes, started by `HostMesh.spawn_procs`. A slice of it is a reference: it can spawn, but not stop."""

    def __init__(self, core: ProcMeshCore, shape: Shape, host_mesh: HostMesh, *, whole: bool = False) -> None:
        self._core = core
        self._shape = shape
        self._host_mesh = host_mesh
        self._whole = whole and core.owner is not None

    @property
    def _ndslice(self) -> Slice:
        return self._shape.ndslice

    @property
    def _labels(self) -> Sequence[str]:
        return self._shape.labels

    def _new_with_shape(self, shape: Shape) -> ProcMesh:
        return ProcMesh(self._core, shape, self._host_mesh)

    @property
    def host_mesh(self) -> HostMesh:
        """The host of a mesh of one process."""
        if len(self) != 1:
            raise NotImplementedError(
                f"host_mesh is there only for a mesh of one process, and this one has {len(self)}: slice it first"
            )
        return self._host_mesh._at(self._ndslice.offset // self._core.per_host)

    def _at(self, index: int) -> ProcMesh:
        """The process at a place in row-major order, as a mesh without dimensions."""
        return self._new_with_shape(point_shape(self._ndslice, index))

    @cached_property
    def _proc_mesh(self) -> Any:
        from monarch._compat.mesh_handle import MeshHandle

        return MeshHandle(self)

    @property
    def region(self) -> Region:
        return self._shape.region

    @property
    def _stopped(self) -> bool:
        return self._core.stopped

    @property
    def initialized(self) -> Future[bool]:
        """Done when the processes are up and the bootstrap function has run in each."""
        return Future._from_function(self._core.readiness.wait_true)

    @property
    def incarnation(self) -> int:
        """1, and one more at each restart of some of the processes."""
        return self._core.members.incarnation

    @property
    def incarnations(self) -> list[int]:
        """In the order of ranks: the incarnation of the mesh in which each process was started."""
        return [self._core.members.incarnations[rank] for rank in self._ndslice]

    def pids(self) -> list[int]:
        """The processes' ids on their hosts, in the order of ranks; waits until they are up."""
        self._core.readiness.wait()
        if not self._core.pids:
            raise NotImplementedError("process ids are known where the processes were spawned")
        return [self._core.pids[rank] for rank in self._ndslice]

    @overload
    def spawn(self, name: str, Class: Callable[..., T], *args: Any, restart: Restart, **kwargs: Any) -> T: ...
    @overload
    def spawn(
        self, name: str, Class: Callable[..., T], *args: Any, hung_after_s: float, **kwargs: Any
    ) -> T: ...
    @overload
    def spawn(self, name: str, Class: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...
    def spawn(self, name: str, Class: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Creates one actor in each process and returns the mesh of them, at once.

        Args:
            name: the mesh's name in reports; it need not be unique.
            Class: a subclass of `Actor`.
            *args, **kwargs: for `Class.__init__`; pickled here and now.
            restart: a `Restart` says which actors are made again when one fails; any other value is for `Class`.
            hung_after_s: the owner is told of an actor that is in one handler for longer than this, see `hang_hook`; 0:
                never. By default the configuration key `hung_after` says when. If `Class.__init__` has a parameter of this
                name, it is that.
        """
        hung_after = hung_after_ms(_pop_hung_after(Class, kwargs))
        policy = kwargs.pop("restart") if isinstance(kwargs.get("restart"), Restart) else None
        if not (isinstance(Class, type) and issubclass(Class, Actor)):
            raise ValueError(
                f"{Class!r} must subclass monarch.service.Actor to spawn it (monarch.actor.Actor)"
            )
        if not isinstance(name, str):
            raise TypeError(f"the name of a mesh is a str, not {name!r}")
        owner = context().actor_instance
        mocks = mock.seen_by(owner)
        Class = cast("type[T]", mocks.get(Class, Class))
        check_class(Class, _RESERVED)
        if Class.__init__ is not object.__init__:
            signature_of(Class.__init__, 1).check(args, kwargs)
        parts = pickling.dumps_creation(Class, args, kwargs, *((mocks,) if mocks else ()))
        return cast("T", self._spawn(owner, name, Class, parts, policy, hung_after))

    def _spawn(
        self,
        owner: Instance,
        name: str,
        cls: type,
        parts: list[Any],
        policy: Restart | None = None,
        hung_after_ms: int = 0,
    ) -> ActorMesh[Any]:
        base = self._core
        count = len(self)
        actor = owner.runtime.next_actor_id()
        core = ActorMeshCore(name, cls, actor, Readiness(), owner.label)
        created = owner.runtime.open_call(owner.actor, count)
        core.proc_mesh = self
        core.watch_creation(owner, created, count)
        owner.own(core)
        shape = Shape(self._labels, Slice.new_row_major(self._ndslice.sizes))
        mesh: ActorMesh[Any] = ActorMesh(core, shape, spawned_here=True)
        core.mesh = mesh

        ranks = list(self._ndslice)

        def create() -> None:
            core.set_procs([base.procs[rank] for rank in ranks])
            if policy is not None:
                core.restarter = Restarter(owner, policy, name)
            told = core.restarter or owner
            creation = core.creation = Creation(owner, core, shape, parts, self._describe_to(owner), told)
            creation.hung_after_ms = hung_after_ms
            if policy is not None or base.restartable is not None:
                self._make_restartable(core, creation, ranks)
            creation.tell(core.members.addresses)
            creation.send(dict(enumerate(core.members.addresses)), 1, created)
            if policy is None and base.restartable is None:
                creation.parts = []  # Else they would live as long as the mesh.
            core.readiness.set_ready()

        def create_when_up() -> None:
            base.members.when_up(ranks, lambda: base.turns.post(create_in_turn), fail)

        def create_in_turn() -> None:
            if base.members.down.keys().isdisjoint(ranks):
                create()
            else:
                create_when_up()

        def fail(error: BaseException) -> None:
            owner.release(core)
            text = f"error spawning actor mesh: {error}"
            for rank in range(count):
                owner.runtime.fail_call(created, rank, {"kind": "start_failed", "mesh": name, "reason": text})
            if isinstance(error, ActorError):  # The bootstrap function's.
                core.created = Future._from_error(error)
            core.readiness.set_error(type(error)(text) if type(error) is RuntimeError else error)

        if base.stopped:
            fail(RuntimeError("`ProcMesh` has already been stopped"))
        else:
            may_change = base.restarter is not None or base.members.source is not None
            base.readiness.post(create_when_up if may_change else create, fail)
        return mesh

    def _describe_to(self, owner: Instance, procs: list[Proc] | None = None) -> Callable[[], Any]:
        """What actors learn of the place where they are made."""

        def describe() -> Any:
            # A reference, and not this mesh: it is still on its way to ready. And one that does not follow
            # restarts, which would cost each process two threads.
            reference = _rebuild(*self._reference(Members(list(procs or self._core.procs))))
            return pickling.dumps({"proc_mesh": reference, "creator": owner.as_creator()})[0]

        return describe

    def _make_restartable(self, core: ActorMeshCore, creation: Creation, ranks: list[int]) -> None:
        base = self._core
        actors = RestartableActors(core, creation, base, ranks)
        if core.restarter is not None:
            core.restarter.start(actors, len(ranks))
        if base.restartable is not None and base.members.supervised:
            assert base.restarter is not None
            core.members.follow_procs()
            creation.told_of_deaths = base.restarter.actor
            base.restartable.actors.append(actors)

    def stop(self, reason: str = "stopped by client", *, timeout: float | None = None) -> Future[None]:
        """Stops the actors and ends the processes.

        Processes that have not left after `timeout` seconds (None: `process_exit_timeout`) get SIGTERM, and SIGKILL a second
        later; a warning names them. ValueError for a negative, infinite or NaN one.
        """
        limit_s = None if timeout is None else check_timeout(timeout)
        if not self._whole:
            raise ValueError("ProcMesh is not owned; must be stopped by an owner")
        core = self._core
        return Future._from_function(lambda: core.stop(reason, limit_s))

    def to_table(self) -> str:
        """The layout, for people: the rank at each place, a line for each row of the last dimension."""
        labels, sizes = self._shape.labels, self._ndslice.sizes
        width = sizes[-1] if sizes else 1
        ranks = list(self._ndslice)
        lines = [f"{self._core.name}: {dict(zip(labels, sizes, strict=True))}"]
        for row in range(0, len(ranks), width):
            lines.append("  ".join(str(rank) for rank in ranks[row : row + width]))
        return "\n".join(lines)

    async def sync_workspace(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("a workspace is synchronised over hosts: HostMesh.sync_workspace")

    async def logging_option(
        self,
        stream_to_client: bool = False,
        aggregate_window_sec: float | None = None,
        level: int = _LEVEL_INFO,
    ) -> None:
        """Says what becomes of the processes' output from now on, and how much their loggers say.

        Until the first call, and without `stream_to_client`, it is printed as it is.

        Args:
            stream_to_client: each line is printed as "[host proc] [rank] line". It takes the configuration key
                `enable_log_forwarding` when the processes are spawned; without, this warns.
            aggregate_window_sec: seconds in which lines that are alike are collected and then printed as one, with
                their number. None: each line is printed when it comes.
            level: of the root logger in each process, 0 to 255; else ValueError.
        """
        from monarch._actor import log_control

        if not 0 <= level <= _LEVEL_MAX:
            raise ValueError(f"a logging level is from 0 to {_LEVEL_MAX}, not {level}")
        if aggregate_window_sec is not None and (not stream_to_client or aggregate_window_sec < 0):
            raise ValueError(
                f"aggregate_window_sec={aggregate_window_sec} takes stream_to_client=True, and at least 0 seconds"
            )
        await self.initialized
        output = self._core.output
        if stream_to_client and (output is None or not any(map(output.covers, self._core.procs))):
            warnings.warn(
                "logging_option(stream_to_client=True) has no effect: these processes were spawned without log "
                "forwarding, on other hosts, or not by this client. Call monarch.configure(enable_log_forwarding=True) before "
                "spawn_procs",
                stacklevel=2,
            )
        control = log_control.spawn_control(self)
        try:
            token = None if output is None else log_control.next_token()
            await control.apply.call(level, token)
            if output is not None and token is not None:
                await Future._from_function(lambda: log_control.wait_synced(self, output, token))
                prefix = bool(layers.effective["prefix_with_rank"])
                output.set_options(streaming=stream_to_client, window=aggregate_window_sec, prefix=prefix)
                if stream_to_client:
                    log_control.flush_after_cells(self, output)
        finally:
            await control.stop()

    async def __aenter__(self) -> ProcMesh:
        if self._core.stopped:
            raise RuntimeError("`ProcMesh` has already been stopped")
        return self

    async def __aexit__(self, *exc: object) -> None:
        if not self._core.stopped:
            await self.stop()

    def __repr__(self) -> str:
        return f"ProcMesh(name={self._core.name!r}, shape={self._shape})"

    def __reduce__(self) -> Any:
        self._core.readiness.wait_to_refer()
        return (_rebuild, self._reference(self._core.members))

    def _reference(self, members: Members) -> tuple[str, Members, int, Shape, HostMesh]:
        return (self._core.name, members, self._core.per_host, self._shape, self._host_mesh)


def _pop_hung_after(cls: Any, kwargs: dict[str, Any]) -> float | None:
    if "hung_after_s" not in kwargs or signature_of(getattr(cls, "__init__", cls), 1).has("hung_after_s"):
        return None
    return cast("float | None", kwargs.pop("hung_after_s"))


def _rebuild(name: str, members: Members, per_host: int, shape: Shape, host_mesh: HostMesh) -> ProcMesh:
    core = ProcMeshCore(name, Readiness.of_reference(), [], None, per_host)
    core.members = members
    return ProcMesh(core, shape, host_mesh)


class SpawnCallbacks:
    """Functions that are called with each new ProcMesh, in the process and on the thread that spawns it."""

    _all: list[Callable[[ProcMesh], None]] = []
    _meshes: weakref.WeakSet[ProcMesh] = weakref.WeakSet()

    @classmethod
    def tell(cls, mesh: ProcMesh) -> None:
        cls._meshes.add(mesh)
        for callback in list(cls._all):
            callback(mesh)


def register_proc_mesh_spawn_callback(callback: Callable[[ProcMesh], None]) -> None:
    """From now on `callback` is called with each mesh that `spawn_procs` returns in this process."""
    SpawnCallbacks._all.append(callback)


def unregister_proc_mesh_spawn_callback(callback: Callable[[ProcMesh], None]) -> None:
    """Takes back a registration. ValueError if there is none."""
    SpawnCallbacks._all.remove(callback)


def get_active_proc_meshes() -> list[ProcMesh]:
    """The meshes that were spawned in this process, still exist, and are not stopped."""
    return [mesh for mesh in SpawnCallbacks._meshes if not mesh._stopped]


def start_in_background(work: Callable[[], None]) -> None:
    """Runs work for the current actor on another thread."""
    from monarch._actor.process import process

    run = contextvars.copy_context().run
    thread = threading.Thread(target=run, args=(work,), name="monarch-spawn", daemon=True)
    thread.start()
    process().background.add(thread)
