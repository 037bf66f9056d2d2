"""Hosts, on which processes are spawned."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NoReturn

from monarch._actor.context import Instance, context
from monarch._actor.errors import SpawnError
from monarch._actor.failure import FailureEvent
from monarch._actor.future import Future
from monarch._actor.host_mesh_core import HostMeshCore
from monarch._actor.launch_spec import (
    BootstrapCommand,
    default_bootstrap_cmd,
    make_boot,
    make_spec,
    phase_timeout_ms,
    positive_limits,
)
from monarch._actor.mesh_trait import MeshTrait, point_shape
from monarch._actor.pickling import Reference
from monarch._actor.proc_mesh import ProcMesh, SpawnCallbacks, start_in_background
from monarch._actor.proc_mesh_core import ProcMeshCore
from monarch._actor.process import process
from monarch._actor.readiness import Readiness
from monarch._actor.restart_policy import Restart
from monarch._actor.restartable_procs import Launch, RestartableProcs
from monarch._actor.restarter import Restarter
from monarch._actor.setup_actor import SetupActor, set_up
from monarch._actor.shape import Point, Region, Shape, Slice


class HostMesh(Reference, MeshTrait):
    """Hosts. `this_host()` gives the one this code runs on, `attach_to_workers` those at addresses.

    Slices and unpickled meshes are references: they can spawn, but neither stop nor shut down.
    """

    stream_logs = False
    is_fake_in_process = False

    def __init__(self, core: HostMeshCore, shape: Shape, *, owned: bool = False) -> None:
        self._core = core
        self._shape = shape
        self._owned = owned

    @property
    def _ndslice(self) -> Slice:
        return self._shape.ndslice

    @property
    def _labels(self) -> Sequence[str]:
        return tuple(self._shape.labels)

    def _new_with_shape(self, shape: Shape) -> HostMesh:
        return self if shape == self._shape else HostMesh(self._core, shape)

    def _at(self, index: int) -> HostMesh:
        return self._new_with_shape(point_shape(self._ndslice, index))

    def _hosts(self) -> list[bytes]:
        """The ids of the hosts, in row-major order; the mesh is ready."""
        return [self._core.hosts[rank] for rank in self._ndslice]

    @property
    def region(self) -> Region:
        return self._shape.region

    @property
    def initialized(self) -> Future[bool]:
        """Done when all hosts are attached."""
        return Future._from_function(self._core.readiness.wait_true)

    def with_python_executable(self, path: str) -> HostMesh:
        """The same hosts, whose processes run another interpreter, and so do the processes that those spawn.

        An owned mesh is itself changed, too.
        """
        if self._owned:
            self._core.python_executable = path
            return HostMesh(self._core, self._shape, owned=True)
        self._core.readiness.wait()
        return HostMesh(self._core.with_executable(path), self._shape)

    def spawn_procs(
        self,
        per_host: dict[str, int] | None = None,
        bootstrap: Callable[[], Any] | None = None,
        name: str | None = None,
        proc_bind: list[dict[str, str]] | None = None,
        bootstrap_command: BootstrapCommand | Callable[[Point], BootstrapCommand] | None = None,
        restart: Restart | None = None,
        memory_max: int | None = None,
        pids_max: int | None = None,
    ) -> ProcMesh:
        """Starts processes on each host and returns their mesh, at once; the start goes on in the background.

        On the caller's own host they have the caller's environment, directory and limits; on others, those of the
        host's worker loop.

        Args:
            per_host: dimensions of the processes of one host, such as {"gpus": 8}.
            bootstrap: a function, sync or async, that runs in each process before any actor is made there.
            name: the mesh's name in reports.
            proc_bind: processors and memory for each process of a host.
            bootstrap_command: the program to start, for all or for each place.
            restart: which processes are started again when one dies, and with them the actors on them.
            memory_max: most bytes for each process with all that it starts; the kernel kills one that needs more.
            pids_max: most processes and threads of each process with all that it starts; no more can be made.
                Both need a session with a cgroup of its own (docs/limits.md); elsewhere the spawn fails with what
                is missing.
        """
        self._core.check_open()
        limits = positive_limits(memory_max=memory_max, pids_max=pids_max)
        shape = self._shape_of_procs(per_host or {})
        procs_per_host = len(shape) // len(self)
        if proc_bind is not None and len(proc_bind) != procs_per_host:
            raise ValueError(
                f"proc_bind length ({len(proc_bind)}) must equal procs_per_host ({procs_per_host})"
            )
        owner = context().actor_instance
        functions = SetupActor.functions(bootstrap)
        output = process().add_output()
        tag = "" if output is None else output.tag
        specs = self._specs(shape, procs_per_host, proc_bind, bootstrap_command, tag, limits)
        core = ProcMeshCore(_unique_name(name or "anon"), Readiness(), [], owner, procs_per_host)
        core.output = output
        core.shape = shape
        self._core.add_spawned(core)
        owner.own(core)
        core.mesh = mesh = ProcMesh(core, shape, self, whole=True)
        phase_ms = phase_timeout_ms()
        start_in_background(lambda: _spawn(owner, mesh, Launch(specs, [], phase_ms, functions), restart))
        SpawnCallbacks.tell(mesh)
        return mesh

    def _shape_of_procs(self, per_host: dict[str, int]) -> Shape:
        twice = [label for label in per_host if label in self._shape.labels]
        if twice:
            raise ValueError(
                f"dimensions of the hosts and of the processes per host have the same name: {twice}"
            )
        for label, size in per_host.items():
            if not isinstance(label, str) or isinstance(size, bool) or int(size) != size or size < 1:
                raise ValueError(f"per_host maps names to sizes of at least 1, not {label!r} to {size!r}")
        return Shape.row_major(
            {**dict(self._shape.extent), **{label: int(size) for label, size in per_host.items()}}
        )

    def _is_far(self, rank: int) -> bool:
        """Whether that host is another than this process's own. Those that are still being attached are."""
        hosts = self._core.hosts
        return not hosts or hosts[rank] != process().self_proc[0]

    def _specs(
        self,
        shape: Shape,
        procs_per_host: int,
        proc_bind: list[dict[str, str]] | None,
        command: BootstrapCommand | Callable[[Point], BootstrapCommand] | None,
        output_tag: str,
        limits: dict[str, int],
    ) -> list[dict[str, Any]]:
        """One specification for all ranks where they are alike, else one for each."""
        executable = self._core.python_executable
        default = default_bootstrap_cmd(executable)
        far = [self._is_far(rank) for rank in self._ndslice]
        # The output of processes of other hosts stays there.
        tags = {False: output_tag, True: ""}
        boots = {
            is_far: make_boot(
                process().root_proc, own_interpreter=executable is None and command is None and not is_far
            )
            for is_far in set(far)
        }
        if proc_bind is None and len(boots) == 1 and not callable(command):
            tag = tags[far[0]]
            return [make_spec(command or default, boots[far[0]], limits, far=far[0], output_tag=tag)]
        specs = []
        for rank in range(len(shape)):
            chosen = command(Point(rank, shape.extent)) if callable(command) else command
            bind = None if proc_bind is None else proc_bind[rank % procs_per_host]
            is_far = far[rank // procs_per_host]
            specs.append(
                make_spec(chosen or default, boots[is_far], limits, bind, far=is_far, output_tag=tags[is_far])
            )
        return specs

    def shutdown(self) -> Future[None]:
        """Ends all processes on the hosts, and the hosts' worker loops: nobody can attach to them again."""
        if not self._owned:
            return _refuse("cannot shut down `HostMesh` that is a reference instead of owned")
        return Future._from_function(self._core.shutdown)

    def stop(self) -> Future[None]:
        """Ends the processes spawned through this mesh; the hosts can be attached to again."""
        if not self._owned:
            return _refuse("cannot stop `HostMesh` that is a reference instead of owned")

        def stop() -> None:
            self._core.check_open()
            self._core.stop_procs("the host mesh was stopped")

        return Future._from_function(stop)

    async def sync_workspace(self, workspace: Any, conda: bool = False, auto_reload: bool = False) -> None:
        """Makes `$WORKSPACE_DIR` of each host what the workspace's directories are here, and returns when all have it.

        What is equal is not copied; what is in the hosts' copies and not here is removed. A host whose directories
        cannot be brought up to date keeps them as they were.

        Args:
            workspace: a `monarch.tools.config.Workspace`: local directories, and the place of each on the hosts.
            conda: also copies the active conda environment, which is not supported: NotImplementedError if there is one.
            auto_reload: reloads modules of the workspace whose files have changed, in the processes that were
                spawned through this mesh.

        RuntimeError names the hosts that failed and why; slices and unpickled meshes cannot do it. An OSError is about a
        local directory.
        """
        from monarch.tools.config.workspace import Workspace

        if not isinstance(workspace, Workspace):
            raise TypeError(f"workspace is a monarch.tools.config.Workspace, not {workspace!r}")
        if not self._owned:
            raise RuntimeError(
                "cannot call sync_workspace on a sliced host mesh, one that was sent to an actor, or this_host(): use the "
                "mesh that attach_to_workers or a job returned"
            )
        self._core.check_open()
        if conda and os.environ.get("CONDA_PREFIX"):
            raise NotImplementedError(
                "sync_workspace does not copy conda environments: create the environment on the hosts and use "
                "with_python_executable, or share it between them"
            )
        if workspace.dirs:
            from monarch._workspace.sync import sync_workspace

            await sync_workspace(self, workspace, auto_reload)

    async def __aenter__(self) -> HostMesh:
        self._core.check_open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if not self._core.is_shut_down:
            await self.shutdown()

    @cached_property
    def _hy_host_mesh(self) -> Any:
        from monarch._compat.mesh_handle import MeshHandle

        return MeshHandle(self)

    @property
    def _inner_host_mesh(self) -> Any:
        return None if self._core.is_shut_down else self._hy_host_mesh

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HostMesh):
            return NotImplemented
        if self._shape != other._shape or self._core.python_executable != other._core.python_executable:
            return False
        if self._core is other._core:
            return True
        both_ready = self._core.readiness.ready and other._core.readiness.ready
        return both_ready and self._hosts() == other._hosts()

    def __hash__(self) -> int:
        return hash(self._shape)

    def __repr__(self) -> str:
        return f"HostMesh(shape={self._shape})"

    def __reduce__(self) -> Any:
        self._core.readiness.wait_to_refer()
        return (_rebuild, (self._core.hosts, self._shape, self._core.python_executable))


def _rebuild(hosts: list[bytes], shape: Shape, python_executable: str | None) -> HostMesh:
    return HostMesh(HostMeshCore(hosts, Readiness.of_reference(), python_executable), shape)


def _refuse(text: str) -> Future[None]:
    def refuse() -> NoReturn:
        raise RuntimeError(text)

    return Future._from_function(refuse)


def _spawn(owner: Instance, mesh: ProcMesh, launch: Launch, policy: Restart | None) -> None:
    core, shape, host_mesh = mesh._core, mesh._shape, mesh._host_mesh
    try:
        host_mesh._core.readiness.wait()
        here = process()
        if here.is_client:
            from monarch._actor.controller import start_controllers

            start_controllers(here)
        hosts = [host for host in host_mesh._hosts() for _ in range(core.per_host)]
        if set(hosts) == {here.self_proc[0]}:
            hosts = []
        spawned = here.control().spawn_procs(
            core.name, shape.labels, shape.ndslice.sizes, launch.specs, owner.address, launch.phase_ms, hosts
        )
        core.members.set_all([address for address, _ in spawned])
        core.pids = [pid for _, pid in spawned]
        if core.output is not None:
            core.output.set_procs(core.procs)
        if policy is not None:
            core.restarter = Restarter(owner, policy, core.name)
        core.tell()
        if launch.functions:
            set_up(owner, mesh, launch.functions)
        if core.restarter is not None:
            core.restartable = RestartableProcs(mesh, launch._replace(hosts=hosts))
            core.members.follow_procs()
            core.restarter.start(core.restartable, len(shape))
    except Exception as error:
        owner.release(core)
        if core.restarter is not None:
            core.restarter.quit()
        if core.output is not None:
            core.output.finish(0.0)
        if core.procs:
            # The bootstrap function failed: whole or not at all. The session may be over, and they with it.
            with contextlib.suppress(Exception):
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


_names_lock = threading.Lock()
_names: dict[str, int] = {}


def _unique_name(name: str) -> str:
    """In lower case, without what is neither letter nor digit nor "-" nor "_", and told from earlier ones."""
    kept = "".join(c for c in name.lower() if c.isalnum() or c in "_-") or "anon"
    with _names_lock:
        count = _names[kept] = _names.get(kept, 0) + 1
    return kept if count == 1 else f"{kept}-{count}"


def proc_mesh_of(instance: Instance, spawned_on: ProcMesh | None) -> ProcMesh:
    """The process that runs `instance`, as a mesh of one."""
    if spawned_on is not None:
        return spawned_on._at(instance.rank.rank)
    # The client, and what runs in it without having been spawned on a mesh.
    hosts = HostMeshCore([instance.runtime.self_proc[0]], Readiness.done())
    core = ProcMeshCore("this_proc", Readiness.done(), [instance.runtime.self_proc], None)
    return ProcMesh(core, Shape.unity(), HostMesh(hosts, Shape.unity()))


def this_host() -> HostMesh:
    """The host this code runs on, as a mesh of one without dimensions."""
    return this_proc().host_mesh


def this_proc() -> ProcMesh:
    """The process this code runs in, as a mesh of one; actors spawned on it live in this process."""
    return context().actor_instance.proc


def hosts_from_config(name: str) -> HostMesh:
    """Two hosts, started on this machine and attached to; they end with this program. `name` is for people."""
    from monarch.job import ProcessJob

    job = ProcessJob({"hosts": 2})
    hosts: HostMesh = job.state(cached_path=None).hosts
    atexit.register(job.kill)
    return hosts
