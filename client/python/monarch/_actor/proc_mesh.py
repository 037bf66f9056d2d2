"""A mesh of processes, on which actors are spawned."""

from __future__ import annotations

import contextvars
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from monarch import _runtime
from monarch._actor import mock, peer_semantics, pickling
from monarch._actor.actor import Actor, check_class
from monarch._actor.actor_mesh import _RESERVED, ActorMesh, ActorMeshCore, class_name
from monarch._actor.context import Instance, context
from monarch._actor.errors import ActorError
from monarch._actor.future import Future
from monarch._actor.mesh_trait import MeshTrait, point_shape
from monarch._actor.owned import GONE, warn_late
from monarch._actor.readiness import Readiness
from monarch._actor.shape import Region, Shape, Slice
from monarch._actor.signature import signature_of
from monarch._config.layers import layers

if TYPE_CHECKING:
    from monarch._actor.host_mesh import HostMesh
    from monarch._actor.log_stream import MeshOutput
    from monarch._actor.owned import Owned, Stopping
    from monarch._runtime import Inbox, Proc

P = ParamSpec("P")
T = TypeVar("T", bound=Actor)

# Between a stop's TERM, which follows the grace period, and KILL.
_KILL_AFTER_MS = 1000
# For the last lines of processes that are gone to arrive.
_OUTPUT_S = 3.0
_SIGKILL, _SIGTERM = 9, 15  # of the daemon; without importing signal
_LEVEL_INFO = 20  # logging.INFO, without importing it
_LEVEL_MAX = 255


class ProcMeshCore:
    """What a mesh of processes and all its slices share."""

    is_procs = True

    def __init__(
        self, name: str, readiness: Readiness, procs: list[Proc], owner: Instance | None, per_host: int = 1
    ) -> None:
        self.name = name
        self.readiness = readiness
        self.procs = procs  # in rank order, host by host, once ready
        self.per_host = per_host
        self.pids: list[int] = []
        self.owner = owner  # None: a reference
        self.stopped = False
        self._stop_lock = threading.Lock()
        self._stopping: Stopping = lambda deadline: None
        self.mesh: ProcMesh | None = None  # what the spawner was given
        self.output: MeshOutput | None = None  # with forwarding, in the client that spawned the processes

    def begin_stop(self, reason: str) -> Stopping:
        """Stops the processes, once; all who ask wait for the same."""
        with self._stop_lock:
            if self.owner is not None and not self.stopped and self.readiness.error is None:
                self.stopped = True
                self._stopping = self._stop_in_background(reason)
            return self._stopping

    def _stop_in_background(self, reason: str) -> Stopping:
        """On a thread of its own, for the control plane's requests block."""

        def stop() -> None:
            self.readiness.wait_over()
            if self.readiness.error is not None:
                return
            try:
                self.end_procs(reason)
            except RuntimeError as error:
                # A daemon that is gone has taken them along.
                if getattr(error, "code", "") not in GONE:
                    raise

        stopping = Future._from_function(stop, eager=True)

        def wait(deadline: float) -> None:
            # Longer than the daemon's own ladder takes, and so only for a daemon that does not answer.
            limit = layers.seconds("process_exit_timeout") + layers.seconds("proc_stop_max_idle")
            stopping._wait(max(0.0, deadline - time.monotonic()) + limit)
            stopping.get()  # It is settled: raises what went wrong.

        return wait

    def end_procs(self, reason: str) -> None:
        """Blocks until they are gone."""
        from monarch._actor.process import process

        if self.owner is not None:
            self.owner.runtime.remove_owned_mesh(self.owner.actor, 0, self.name)
        grace_s = layers.seconds("process_exit_timeout")
        grace_ms = max(1, int(grace_s * 1000))
        started = time.monotonic()
        ends = process().control().stop_procs(self.procs, grace_ms, _KILL_AFTER_MS, reason)
        had_its_time = time.monotonic() - started >= grace_s  # else the session ended meanwhile
        for end in ends:
            # The daemon adds what it took to end it.
            how = end["reason"].removeprefix(f"{reason}; ")
            late = end["code"] in (_SIGTERM, _SIGKILL)
            if how != end["reason"] and (had_its_time or not late):
                what = f"did not leave within {grace_s:g} s" if late else "crashed when it was stopped"
                who = f"process {end['pid']} of mesh {self.name!r} {end['rank_label']} on {end['host_name']}"
                warn_late(f"{who} {what}: {how}")
        if self.output is not None:
            self.output.finish(_OUTPUT_S)
        if self.owner is not None:
            for mesh in self._actors_of_owner():
                self.owner.release(mesh)

    def leave_and_stop(self, reason: str) -> Stopping:
        """As begin_stop, for who stops the mesh before its owner ends."""
        if self.owner is not None:
            self.owner.release(self)
        return self.begin_stop(reason)

    def stop(self, reason: str) -> None:
        self.leave_and_stop(reason)(time.monotonic())

    def give_up(self, reason: str) -> None:
        """Somebody ends the processes on purpose: their end, and that of the owner's actors there, is no failure."""
        owner = self.owner
        if owner is None or self.stopped:
            return
        self.stopped = True
        for mesh in (self, *self._actors_of_owner()):
            owner.release(mesh)
            mesh.disown(reason)

    def _actors_of_owner(self) -> list[Owned]:
        owned = [] if self.owner is None else self.owner.owned
        return [mesh for mesh in owned if mesh.is_on(self)]

    def is_on(self, procs: ProcMeshCore) -> bool:
        return False

    def disown(self, reason: str) -> None:
        owner = self.owner
        assert owner is not None
        remove = partial(owner.runtime.remove_owned_mesh, owner.actor, 0, self.name)
        # Behind the start, which may be under way.
        self.readiness.post(remove, lambda error: None)


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

    def pids(self) -> list[int]:
        """The processes' ids on their hosts, in the order of ranks; waits until they are up."""
        self._core.readiness.wait()
        if not self._core.pids:
            raise NotImplementedError("process ids are known where the processes were spawned")
        return [self._core.pids[rank] for rank in self._ndslice]

    def spawn(self, name: str, Class: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Creates one actor in each process and returns the mesh of them, at once.

        Args:
            name: the mesh's name in reports; it need not be unique.
            Class: a subclass of `Actor`.
            *args, **kwargs: for `Class.__init__`; pickled here and now.
        """
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
        return cast("T", self._spawn(owner, name, Class, parts))

    def _spawn(self, owner: Instance, name: str, cls: type, parts: list[Any]) -> ActorMesh[Any]:
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

        def create() -> None:
            core.procs = [base.procs[rank] for rank in self._ndslice]
            self._send_create(owner, core, shape, parts, created)
            core.readiness.set_ready()

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
            base.readiness.post(create, fail)
        return mesh

    def _send_create(
        self, owner: Instance, core: ActorMeshCore, shape: Shape, parts: list[Any], created: Inbox
    ) -> None:
        runtime = owner.runtime
        labels, sizes = shape.labels, shape.ndslice.sizes
        cls = class_name(core.cls)
        runtime.add_owned_mesh(owner.actor, core.name, cls, core.actor, core.procs, labels, sizes)
        # A reference, and not this mesh: it is still on its way to ready.
        reference = _rebuild(*self._reference())
        info = pickling.dumps({"proc_mesh": reference, "creator": owner.as_creator()})[0]
        meta = {
            "actor": core.actor,
            "name": core.name,
            "class": cls,
            "mesh": core.name,
            "labels": labels,
            "sizes": sizes,
            "owner": list(owner.address),
            "owner_label": owner.label,
            "only_if_sound": peer_semantics.strict(),
        }
        for rank, proc in enumerate(core.procs):
            meta["rank"] = rank
            targets = _runtime.Targets([(*proc, 0)], [rank])
            runtime.send(
                owner.actor,
                _runtime.CREATE,
                targets,
                _runtime.PICKLE,
                _runtime.encode_value(meta),
                [info, *parts],
                created,
            )

    def stop(self, reason: str = "stopped by client") -> Future[None]:
        """Stops the actors and ends the processes."""
        if not self._whole:
            raise ValueError("ProcMesh is not owned; must be stopped by an owner")
        core = self._core
        return Future._from_function(lambda: core.stop(reason))

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
        return (_rebuild, self._reference())

    def _reference(self) -> tuple[str, list[Proc], int, Shape, HostMesh]:
        core = self._core
        return (core.name, core.procs, core.per_host, self._shape, self._host_mesh)


def _rebuild(name: str, procs: list[Proc], per_host: int, shape: Shape, host_mesh: HostMesh) -> ProcMesh:
    return ProcMesh(ProcMeshCore(name, Readiness.of_reference(), procs, None, per_host), shape, host_mesh)


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
