"""What actors are at work on, and since when: shown by their threads, and looked at by the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from monarch._actor.value_mesh import ValueMesh

if TYPE_CHECKING:
    from monarch._actor.actor_mesh import ActorMesh
    from monarch._actor.actor_runner import ActorRunner


class Activity(NamedTuple):
    """What an actor is at work on.

    Attributes:
        method: the endpoint, `__init__`, `__supervise__` or `__cleanup__`; its first 40 bytes. Of several endpoints of
            an async actor, the one that began first and is not through.
        seconds: since when.
        state: after the first second what its thread does, else empty. "stopped": the process is, by a signal or a
            debugger. "starved": it wants a CPU and gets little. "interpreter held": a thread of the process keeps the
            interpreter's lock. "computing". "waiting": it sleeps.
        wait_channel: of one that waits, the kernel's function where it sleeps; empty where that may not be read.
        pid: of its process.
    """

    method: str
    seconds: float
    state: str
    wait_channel: str
    pid: int


def activities(mesh: ActorMesh[Any]) -> ValueMesh[Activity | None]:
    """What each actor of the mesh is at work on; None for one that is idle, or gone.

    Asks the daemon and no actor: it answers also for processes that do not, in 0.2 s at most. Waits for the mesh's
    processes to be there. On any thread.

    Raises:
        NotImplementedError: some of the mesh is on another host than the caller.
        SupervisionError: the mesh could not be spawned.
    """
    from monarch._actor.process import process

    core = mesh._core
    core.readiness.wait()
    here = process()
    wanted = [tuple(core.members.addresses[rank]) for rank in mesh._ndslice]
    if any(address[0] != here.self_proc[0] for address in wanted):
        raise NotImplementedError(
            "activities: some of the mesh is on another host, which cannot be looked at"
        )
    found = {
        tuple(one["actor"]): Activity(
            one["method"], one["age"], one["state"], one["wait_channel"], one["pid"]
        )
        for one in here.control().list_activities()
    }
    return ValueMesh(mesh._shape, [found.get(address) for address in wanted])


def show_oldest(runner: ActorRunner) -> None:
    """Of the calls that an async actor has begun; on its thread."""
    for message in runner.in_flight.values():
        runner.runtime.call_runs(message, True)
        return
    runner.runtime.set_activity(b"")
