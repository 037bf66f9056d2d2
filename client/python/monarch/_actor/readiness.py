"""Work that waits, in its order, for something that is being started."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable

from monarch._actor.interrupt import interruptible_in_a_loop, wait_interruptibly

Action = Callable[[], None]
OnError = Callable[[BaseException], None]


class ReferenceCounts:
    """Mesh references in this process's messages; a bare `pickle` does not count."""

    sent_pending = 0  # pickled before their mesh was ready
    received = 0


class Readiness:
    """Pending, then ready or failed, once. What is posted while pending runs then, in order. Thread-safe."""

    __slots__ = ("_event", "_lock", "_queue", "error", "ready")

    def __init__(self) -> None:
        self.ready = False  # only ever set once all that was queued before has run
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._queue: deque[tuple[Action, OnError]] = deque()

    @staticmethod
    def done() -> Readiness:
        out = Readiness()
        out.ready = True
        out._event.set()
        return out

    @staticmethod
    def of_reference() -> Readiness:
        """For the function that unpickles a reference to a mesh."""
        if sys._getframe(2).f_globals["__name__"] == "monarch._actor.pickling":
            ReferenceCounts.received += 1
        return Readiness.done()

    def post(self, action: Action, on_error: OnError) -> None:
        """Runs the action: now, when ready, or never; then `on_error` gets the reason."""
        with self._lock:
            if not self.ready and self.error is None:
                self._queue.append((action, on_error))
                return
        if self.error is not None:
            on_error(self.error)
        else:
            action()

    def set_ready(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self.ready = True
                    break
                action, on_error = self._queue.popleft()
            try:
                action()
            except Exception as error:
                on_error(error)
        self._event.set()

    def set_error(self, error: BaseException) -> None:
        with self._lock:
            self.error = error
            queue, self._queue = self._queue, deque()
        for _, on_error in queue:
            on_error(error)
        self._event.set()

    def wait_over(self, timeout: float | None = None) -> None:
        """Returns when ready or failed, or after the time."""
        if not self._event.is_set():
            with interruptible_in_a_loop():
                wait_interruptibly(self._event, timeout)

    def wait(self) -> None:
        """Returns when ready; raises what it failed with."""
        self.wait_over()
        if self.error is not None:
            raise self.error

    def wait_true(self) -> bool:
        """wait(), for the futures that are True when done."""
        self.wait()
        return True

    def wait_to_refer(self) -> None:
        """As wait(), for a reference that is pickled: what is sent is sent once the mesh is known."""
        if not self.ready:
            ReferenceCounts.sent_pending += 1
        self.wait()
