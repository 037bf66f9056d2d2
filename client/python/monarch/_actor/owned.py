"""What an actor owns and takes along when it ends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from monarch._config.layers import layers

if TYPE_CHECKING:
    from monarch._actor.context import Instance
    from monarch._actor.proc_mesh import ProcMeshCore


def stop_actor_s() -> float:
    """The time that the actors of a mesh have to stop."""
    return layers.seconds("stop_actor_timeout")


def warn_late(text: str) -> None:
    """Tells people that something did not end by itself in its time."""
    import logging

    logging.getLogger("monarch").warning(text)


class Owned(Protocol):
    is_procs: bool

    # Asks for the end; the returned function waits for it, at most until a monotonic time.
    def begin_stop(self, reason: str) -> Stopping: ...
    # Whether these are actors in those processes.
    def is_on(self, procs: ProcMeshCore) -> bool: ...
    # From now on their end is no failure of the owner's.
    def disown(self, reason: str) -> None: ...


class Stopping(Protocol):
    def __call__(self, deadline: float) -> None: ...


def stop_owned(instance: Instance, reason: str) -> None:
    """Stops all that the instance owns: actors at once on all meshes, then processes; one limit for both."""
    owned, instance.owned = instance.owned, []
    deadline = time.monotonic() + stop_actor_s()
    for procs in (False, True):
        stopping = []
        for mesh in owned:
            if mesh.is_procs == procs:
                stopping.append(mesh.begin_stop(reason))
        for wait in stopping:
            wait(deadline)
