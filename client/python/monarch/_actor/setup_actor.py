"""What runs in each new process before any actor of the user's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from monarch._actor import pickling
from monarch._actor.actor import Actor
from monarch._actor.actor_mesh import ActorMesh, ActorMeshCore
from monarch._actor.context import Instance
from monarch._actor.creation import Creation
from monarch._actor.endpoint import endpoint, is_coroutine_function
from monarch._actor.future import Future
from monarch._actor.owned import stop_actor_s
from monarch._actor.proc_mesh import ProcMesh
from monarch._actor.proc_mesh_core import ProcMeshCore
from monarch._actor.readiness import Readiness

if TYPE_CHECKING:
    from monarch._actor.restarter import Restarter
    from monarch._runtime import Proc

Setup = Callable[[], Any]


class SetupActor(Actor):
    """Runs start-up functions, and the bootstrap function of `spawn_procs`."""

    _is_system_actor = True
    _startup: list[Callable[[], Setup | None]] = []

    @classmethod
    def register_startup_function(cls, function: Callable[[], Setup | None]) -> None:
        """From now on `function` is called at each spawn of processes; what it returns, unless None, is pickled and
        called in each of them."""
        cls._startup.append(function)

    @classmethod
    def functions(cls, bootstrap: Setup | None) -> list[Setup]:
        """All that new processes run, in order. What cannot be pickled raises here, in the caller."""
        found = [startup() for startup in cls._startup] + [bootstrap]
        functions = [function for function in found if function is not None]
        if functions:
            pickling.dumps(functions)
        return functions

    @endpoint
    async def run(self, functions: list[Setup]) -> None:
        try:
            for function in functions:
                if is_coroutine_function(function):
                    await function()
                else:
                    function()
        except Exception:
            raise
        except BaseException as error:
            # It is the mesh that fails, and not the program, as the end of an actor would mean.
            raise RuntimeError(f"the bootstrap function ended with {error!r}") from error


def set_up(owner: Instance, mesh: ProcMesh, functions: list[Setup]) -> None:
    """Blocks until the functions have run in each process of a mesh that nobody else can use yet."""
    core = ProcMeshCore(
        mesh._core.name, Readiness.done(), mesh._core.procs, None, per_host=mesh._core.per_host
    )
    procs = ProcMesh(core, mesh._shape, mesh._host_mesh)
    setup: ActorMesh[Any] = procs._spawn(owner, "setup", SetupActor, pickling.dumps((SetupActor, (), {})))
    setup.run.call(functions).get()
    setup._core.stop("bootstrap is done")


def set_up_again(
    owner: Instance, mesh: ProcMesh, functions: list[Setup], procs: dict[int, Proc], told: Restarter
) -> None:
    """Blocks until they have run in the new processes of some ranks, where they find themselves at the same place as
    at first. `told` gets to hear of failures meanwhile."""
    core = ActorMeshCore("setup", SetupActor, owner.runtime.next_actor_id(), Readiness.done(), owner.label)
    core.owner = owner
    core.set_procs([procs.get(rank, proc) for rank, proc in enumerate(mesh._core.procs)])
    made_of = pickling.dumps((SetupActor, (), {}))
    creation = Creation(
        owner, core, mesh._shape, made_of, mesh._describe_to(owner, core.members.procs()), told
    )
    members = {rank: core.members.addresses[rank] for rank in procs}
    creation.send(members, 1, owner.runtime.open_call(owner.actor, len(members)))
    run = ActorMesh(core, mesh._shape).run
    for future in [
        Future._from_receiver(run._send((functions,), {}, rank, 1), run._collect_one) for rank in procs
    ]:
        future.get()
    core.stop_members(list(members.values()), "bootstrap is done")(time.monotonic() + stop_actor_s())
