"""Hosts, on which processes are spawned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from monarch._actor.actor import Actor
from monarch._actor.context import Instance, context
from monarch._actor.endpoint import endpoint, is_coroutine_function
from monarch._actor.errors import SpawnError
from monarch._actor.failure import FailureEvent
from monarch._actor.future import Future
from monarch._actor.launch_spec import (
    BootstrapCommand,
    default_bootstrap_cmd,
    make_boot,
    make_spec,
    phase_timeout_ms,
)
from monarch._actor.mesh_trait import MeshTrait
from monarch._actor.proc_mesh import ProcMesh, ProcMeshCore, start_in_background
from monarch._actor.process import process
from monarch._actor.readiness import Readiness
from monarch._actor.shape import Extent, Point, Region, Shape, Slice

if TYPE_CHECKING:
    from monarch._actor.actor_mesh import ActorMesh

_A_REFERENCE = "cannot {} `HostMesh` that is a reference instead of owned"


class HostMesh(MeshTrait):
    """Hosts. `this_host()` gives the one this program runs on."""

    stream_logs = False
    is_fake_in_process = False

    def __init__(self, shape: Shape, python_executable: str | None = None) -> None:
        self._shape = shape
        self._python_executable = python_executable

    @property
    def _ndslice(self) -> Slice:
        return self._shape.ndslice

    @property
    def _labels(self) -> Sequence[str]:
        return self._shape.labels

    def _new_with_shape(self, shape: Shape) -> HostMesh:
        return self if shape == self._shape else HostMesh(shape, self._python_executable)

    @property
    def region(self) -> Region:
        return self._shape.region

    @property
    def initialized(self) -> Future[bool]:
        return Future._from_value(True)

    def with_python_executable(self, path: str) -> HostMesh:
        """The same hosts, whose processes run another interpreter."""
        return HostMesh(self._shape, path)

    def spawn_procs(
        self,
        per_host: dict[str, int] | None = None,
        bootstrap: Callable[[], Any] | None = None,
        name: str | None = None,
        proc_bind: list[dict[str, str]] | None = None,
        bootstrap_command: BootstrapCommand | Callable[[Point], BootstrapCommand] | None = None,
    ) -> ProcMesh:
        """Starts processes on each host and returns their mesh, at once; the start goes on in the background.

        Args:
            per_host: dimensions of the processes of one host, such as {"gpus": 8}.
            bootstrap: a function, sync or async, that runs in each process before any actor is made there.
            name: the mesh's name in reports.
            proc_bind: processors and memory for each process of a host.
            bootstrap_command: the program to start, for all or for each place.
        """
        per_host = dict(per_host or {})
        twice = [label for label in per_host if label in self._shape.labels]
        if twice:
            raise ValueError(
                f"dimensions of the hosts and of the processes per host have the same name: {twice}"
            )
        for label, size in per_host.items():
            if not isinstance(label, str) or isinstance(size, bool) or int(size) != size or size < 1:
                raise ValueError(f"per_host maps names to sizes of at least 1, not {label!r} to {size!r}")
        host_extent = self._shape.extent
        shape = Shape.row_major(
            {**dict(host_extent), **{label: int(size) for label, size in per_host.items()}}
        )
        procs_per_host = len(shape) // len(self)
        if proc_bind is not None and len(proc_bind) != procs_per_host:
            raise ValueError(
                f"proc_bind length ({len(proc_bind)}) must equal procs_per_host ({procs_per_host})"
            )
        owner = context().actor_instance
        core = ProcMeshCore(_normalised(name or "anon"), Readiness(), [], owner)
        specs = self._specs(shape, proc_bind, bootstrap_command)
        owner.owned.append(core)
        mesh = ProcMesh(core, shape, self, whole=True)
        first = None if bootstrap is None else _Bootstrap(mesh, bootstrap)
        phase_ms = phase_timeout_ms()
        start_in_background(lambda: _spawn(owner, core, shape, specs, phase_ms, first))
        return mesh

    def _specs(
        self,
        shape: Shape,
        proc_bind: list[dict[str, str]] | None,
        command: BootstrapCommand | Callable[[Point], BootstrapCommand] | None,
    ) -> list[dict[str, Any]]:
        """One specification for all ranks where they are alike, else one for each."""
        own = self._python_executable is None and command is None
        boot = make_boot(process().root_proc, own_interpreter=own)
        default = default_bootstrap_cmd(self._python_executable)
        if proc_bind is None and (command is None or isinstance(command, BootstrapCommand)):
            return [make_spec(command or default, boot)]
        extent: Extent = shape.extent
        specs = []
        for rank in range(len(shape)):
            chosen = command(Point(rank, extent)) if callable(command) else command
            bind = None if proc_bind is None else proc_bind[rank % len(proc_bind)]
            specs.append(make_spec(chosen or default, boot, bind))
        return specs

    def shutdown(self) -> Future[None]:
        """Ends the hosts' workers; only for hosts that were attached to."""

        def refuse() -> None:
            raise RuntimeError(_A_REFERENCE.format("shutdown").replace("shutdown", "shut down"))

        return Future._from_function(refuse)

    def stop(self) -> Future[None]:
        """Ends the processes spawned through this object; only for hosts that were attached to."""

        def refuse() -> None:
            raise RuntimeError(_A_REFERENCE.format("stop"))

        return Future._from_function(refuse)

    async def __aenter__(self) -> HostMesh:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.shutdown()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HostMesh):
            return NotImplemented
        return self._shape == other._shape and self._python_executable == other._python_executable

    def __hash__(self) -> int:
        return hash((self._shape, self._python_executable))

    def __repr__(self) -> str:
        return f"HostMesh(shape={self._shape})"

    def __reduce__(self) -> Any:
        return (HostMesh, (self._shape, self._python_executable))


class _SetupActor(Actor):
    """Runs the bootstrap function of `spawn_procs`."""

    @endpoint
    async def run(self, function: Callable[[], Any]) -> None:
        try:
            if is_coroutine_function(function):
                await function()
            else:
                function()
        except Exception:
            raise
        except BaseException as error:
            # It is the mesh that fails, and not the program, as the end of an actor would mean.
            raise RuntimeError(f"the bootstrap function ended with {error!r}") from error


class _Bootstrap:
    """A bootstrap function, pickled by the caller, and run before anything else on its processes."""

    def __init__(self, mesh: ProcMesh, function: Callable[[], Any]) -> None:
        from monarch._actor import pickling

        pickling.dumps(function)  # What cannot be sent raises here, in the caller.
        self._mesh = mesh
        self._function = function

    def run(self, owner: Instance, core: ProcMeshCore) -> None:
        from monarch._actor import pickling

        ready = ProcMeshCore(core.name, Readiness.done(), core.procs, None)
        procs = ProcMesh(ready, self._mesh._shape, self._mesh._host_mesh)
        setup: ActorMesh[Any] = procs._spawn(
            owner, "setup", _SetupActor, pickling.dumps((_SetupActor, (), {}))
        )
        setup.run.call(self._function).get()
        setup._core.stop("bootstrap is done")


def _spawn(
    owner: Instance,
    core: ProcMeshCore,
    shape: Shape,
    specs: list[dict[str, Any]],
    phase_ms: int,
    first: _Bootstrap | None,
) -> None:
    try:
        here = process()
        if here.is_client:
            from monarch._actor.controller import start_controllers

            start_controllers(here)
        control = here.control()
        spawned = control.spawn_procs(
            core.name, shape.labels, shape.ndslice.sizes, specs, owner.address, phase_ms
        )
        core.procs += [address for address, _ in spawned]
        core.pids = [pid for _, pid in spawned]
        owner.runtime.add_owned_mesh(
            owner.actor, core.name, "", 0, core.procs, shape.labels, shape.ndslice.sizes
        )
        if first is not None:
            first.run(owner, core)
    except Exception as error:
        if core in owner.owned:
            owner.owned.remove(core)
        if core.procs:
            # The bootstrap function failed: whole or not at all.
            core.end_procs("bootstrap failed")
        core.readiness.set_error(_spawn_error(error))
    else:
        core.readiness.set_ready()


def _spawn_error(error: Exception) -> Exception:
    failures = tuple(FailureEvent(fields) for fields in getattr(error, "failures", ()))
    if not hasattr(error, "code"):
        return error
    lines = [f"error spawning proc mesh: statuses: {getattr(error, 'message', error)}"]
    for failure in failures:
        lines.append(f"  {failure.summary}")
        if failure.stderr_tail:
            lines += [f"    {line}" for line in failure.stderr_tail.rstrip().splitlines()]
    event = failures[0] if failures else None
    return SpawnError("\n".join(lines), None, event, failures, getattr(error, "limit", ""))


def _normalised(name: str) -> str:
    kept = "".join(c for c in name.lower() if c.isalnum() or c in "_-")
    return kept or "anon"


def local_host_mesh() -> HostMesh:
    return HostMesh(Shape.unity())


def this_host() -> HostMesh:
    """The host this code runs on, as a mesh of one without dimensions."""
    return context().actor_instance.host_mesh or local_host_mesh()


def this_proc() -> ProcMesh:
    """The process this code runs in, as a mesh of one."""
    return context().actor_instance.proc
