"""What an actor owns and takes along when it ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from monarch._config.layers import layers

if TYPE_CHECKING:
    from monarch._actor.context import Instance
    from monarch._actor.proc_mesh_core import ProcMeshCore


# Codes of an error that says that what was to end is not there any more.
GONE = ("NOT_FOUND", "UNAVAILABLE")


def stop_actor_s() -> float:
    """The time that the actors of a mesh have to stop."""
    return layers.seconds("stop_actor_timeout")


def warn_late(text: str) -> None:
    """Tells people that something did not end by itself in its time."""
    import logging

    logging.getLogger("monarch").warning(text)


class Owned(Protocol):
    is_procs: bool
    mesh: Any  # what the spawner was given

    # Asks for the end; the returned function waits for it, at most until a monotonic time.
    def begin_stop(self, reason: str) -> Stopping: ...
    # Whether these are actors in those processes.
    def is_on(self, procs: ProcMeshCore) -> bool: ...
    # From now on the owner is not told of their processes' deaths; of what actors fail with it is.
    def tell_no_more(self) -> None: ...
    # From now on their end is no failure of the owner's.
    def disown(self, reason: str) -> None: ...


class Stopping(Protocol):
    # Raises what kept the end from being asked for; TimeoutError if nobody answers.
    def __call__(self, deadline: float) -> None: ...


def wait_for_all(stopping: Iterable[Stopping], deadline: float) -> None:
    """Waits for each, whatever became of the others; then raises the first error."""
    first: Exception | None = None
    for wait in stopping:
        try:
            wait(deadline)
        except Exception as error:
            first = first or error
    if first is not None:
        raise first


_session_ends_at: float | None = None  # monotonic


def session_ends(deadline: float) -> None:
    """From now on what stops has until then, and processes end without being asked for it."""
    global _session_ends_at
    _session_ends_at = deadline


def stop_owned(instance: Instance, reason: str) -> None:
    """Stops all that the instance owns: actors at once on all meshes, then processes; one limit for both."""
    now = time.monotonic()
    deadline = now + stop_actor_s()
    if _session_ends_at is not None:
        # The other half is for the instance's own clean-up.
        deadline = min(deadline, now + max(0.0, _session_ends_at - now) / 2)
    owned = _take(instance)
    for procs in (False, True) if _session_ends_at is None else (False,):
        _stop(owned, procs, reason, deadline)


def stop_owned_actors(instance: Instance, reason: str, deadline: float) -> None:
    """Stops the actors that the instance owns, behind what was sent to them."""
    _stop(_take(instance), False, reason, deadline)


def _take(instance: Instance) -> list[Owned]:
    owned, instance.owned = instance.owned, []
    return owned


def _stop(owned: list[Owned], procs: bool, reason: str, deadline: float) -> None:
    stopping = []
    # What cannot be asked for an end has a dead daemon or a session that is over, and ends with that; the owner
    # goes on ending.
    for mesh in owned:
        if mesh.is_procs == procs:
            with contextlib.suppress(Exception):
                stopping.append(mesh.begin_stop(reason))
    with contextlib.suppress(Exception):
        wait_for_all(stopping, deadline)
