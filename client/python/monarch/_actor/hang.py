"""Actors that are in one handler for longer than their mesh's threshold: noticed by the daemon, told to their owner."""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

from monarch._actor.context import current
from monarch._actor.failure import FailureEvent
from monarch._actor.stderr import say
from monarch._config.layers import layers

if TYPE_CHECKING:
    from collections.abc import Callable

    from monarch._actor.process import Process

# The daemon's least.
_SECONDS_MIN = 0.1


class Hang(NamedTuple):
    """An actor that has been in one handler for longer than its mesh's threshold, or that has come out of it.

    Attributes:
        event: who it is: a `FailureEvent` of kind "hung", of which nothing failed; its `reason` says what follows here.
        method: the endpoint, `__init__`, `__supervise__` or `__cleanup__`, as in `Activity`.
        seconds: since when it is in it; of one that has recovered, how long it was.
        state: what its thread did when it was seen, as in `Activity`: "stopped", "starved", "interpreter held",
            "computing", "waiting", or empty.
        wait_channel: of one that waits, the kernel's function where it sleeps; empty where that may not be read.
        recovered: the handler has ended.
    """

    event: FailureEvent
    method: str
    seconds: float
    state: str
    wait_channel: str
    recovered: bool


def hang_hook(hang: Hang) -> None:
    """Called in the process of the owner when one of its actors hangs, and when that handler has ended.

    This one logs a warning with the logger `monarch`. Assign a function of your own to `monarch.actor.hang_hook` to
    replace it. It runs on a thread of its own, one call at a time; what it raises is printed. Whatever it does, the actor
    lives, its calls are still under way, and no `__supervise__` is called.
    """
    import logging

    logging.getLogger("monarch").warning(hang.event.summary)


def hung_after_ms(seconds: float | None) -> int:
    """The threshold that a spawn asks for; None: that of the configuration. 0: none."""
    if seconds is None:
        seconds = layers.seconds("hung_after")
    elif isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"hung_after_s is a number of seconds, not {seconds!r}")
    elif not (seconds == 0 or seconds >= _SECONDS_MIN):
        raise ValueError(f"hung_after_s is at least {_SECONDS_MIN} seconds, or 0 for never, not {seconds!r}")
    return round(min(seconds, 10**9) * 1000)


class HangNews:
    """What the daemon tells this process as an owner, on its way to the hook. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[Hang] = queue.SimpleQueue()
        self._started = False

    def tell(self, owner: Process, fields: dict[str, Any]) -> None:
        self._queue.put(Hang(FailureEvent(fields.pop("event")), **fields))
        with self._lock:
            if self._started:
                return
            self._started = True
        threading.Thread(target=self._run, args=(owner,), name="monarch-hang-hook", daemon=True).start()

    def _run(self, owner: Process) -> None:
        current.set(owner.default_context())
        while True:
            hang = self._queue.get()
            actor = sys.modules.get("monarch.actor")
            hook: Callable[[Hang], object] = hang_hook if actor is None else actor.hang_hook
            try:
                hook(hang)
            except Exception:
                say(f"hang_hook raised:\n{traceback.format_exc()}")
