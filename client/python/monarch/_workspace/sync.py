"""`HostMesh.sync_workspace`, as the caller sees it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from monarch._actor.actor import Actor
from monarch._actor.context import context
from monarch._actor.endpoint import endpoint
from monarch._actor.errors import ActorError, CallCancelledError, SupervisionError
from monarch._actor.future import Future
from monarch._actor.host_mesh import HostMesh, this_proc
from monarch._actor.host_mesh_core import HostMeshCore
from monarch._actor.proc_mesh import ProcMesh
from monarch._actor.proc_mesh_core import ProcMeshCore
from monarch._actor.readiness import Readiness
from monarch._actor.shape import Shape
from monarch._workspace.listing import Listing
from monarch._workspace.receiver import WorkspaceReceiver
from monarch._workspace.reloader import ModuleReloader
from monarch._workspace.source import WorkspaceSource, list_workspace

if TYPE_CHECKING:
    from monarch._actor.failure import MeshFailure
    from monarch.tools.config.workspace import Workspace


class WorkspaceSync(Actor):
    """In the caller's process for the time of a synchronisation. It owns all that takes part, so that its end is
    theirs, and a host that fails meanwhile is an error of the call and not of the caller."""

    def __supervise__(self, failure: MeshFailure) -> bool:
        return True

    @endpoint
    async def run(
        self, hosts: HostMesh, listing: Listing, files: list[str], reloading: list[ProcMesh]
    ) -> list[str]:
        """What went wrong, in words."""
        source = this_proc().spawn("workspace_source", WorkspaceSource, files)
        receivers = hosts.spawn_procs(name="workspace").spawn("workspace", WorkspaceReceiver)
        reloaders = [reloader for mesh in reloading for reloader in _members(mesh)]
        await _ask([reloader.note.call_one() for reloader in reloaders])
        failed = await _receive(receivers, listing, source)
        if failed:
            return failed
        errors = await _ask([reloader.reload.call_one() for reloader in reloaders])
        return [f"{reloader}: {error}" for reloader, error in zip(reloaders, errors, strict=True) if error]


def _members(mesh: ProcMesh) -> list[Any]:
    reloaders: Any = mesh.spawn("module_reloader", ModuleReloader)
    return [reloaders.slice(procs=index) for index in range(len(mesh))]


async def _ask(futures: list[Future[Any]]) -> list[str]:
    """The errors, "" for none. A process that has ended has nothing to reload."""
    errors = []
    for future in futures:
        try:
            await future
            errors.append("")
        except SupervisionError:
            errors.append("")
        except ActorError as error:
            errors.append(_said(error))
    return errors


async def _receive(receivers: Any, listing: Listing, source: Any) -> list[str]:
    receiving = receivers.receive.call(listing, source)
    given_up = asyncio.ensure_future(context().wait_cancelled())
    try:
        await asyncio.wait([receiving.as_asyncio(), given_up], return_when=asyncio.FIRST_COMPLETED)
        if given_up.done():
            receiving.cancel()  # So that the hosts leave off at once.
        await receiving
    except CallCancelledError:
        return ["it was given up"]
    except ActorError as error:
        return [f"host {rank}, {_said(failure)}" for rank, failure in sorted(error.failures.items())]
    except SupervisionError as error:
        # It ends the call without the others' answers.
        return [f"host {error.event.rank}, {error}" if error.event is not None else str(error)]
    finally:
        given_up.cancel()
    return []


def _said(error: BaseException) -> str:
    return str(error.exception if isinstance(error, ActorError) else error)


async def sync_workspace(mesh: HostMesh, workspace: Workspace, auto_reload: bool) -> None:
    """As `HostMesh.sync_workspace`."""
    listing, files = await Future._from_function(lambda: list_workspace(workspace.dirs))
    await mesh.initialized
    # The same host may be in a mesh twice.
    core = HostMeshCore(list(dict.fromkeys(mesh._core.hosts)), Readiness.done(), mesh._core.python_executable)
    hosts = HostMesh(core, Shape.row_major({"hosts": len(core.hosts)}))
    procs = [
        ProcMesh(
            ProcMeshCore(found.name, Readiness.done(), found.procs, None),
            Shape.row_major({"procs": len(found.procs)}),
            hosts,
        )
        for found in (await Future._from_function(mesh._core.spawned) if auto_reload else ())
    ]
    sync: Any = this_proc().spawn("workspace_sync", WorkspaceSync)
    running = sync.run.call_one(hosts, listing, files, procs)
    try:
        failed = await running
    finally:
        running.cancel()
        await sync.stop("the synchronisation is over")
    if failed:
        raise RuntimeError(f"sync_workspace failed: {'; '.join(failed)}")
