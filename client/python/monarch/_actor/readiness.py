"""Work that waits, in its order, for something that is being started."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from monarch._actor.errors import ResourceExhausted
from monarch._actor.interrupt import interruptible_in_a_loop, wait_interruptibly

Action = Callable[[], None]
OnError = Callable[[BaseException], None]


class ReferenceCounts:
    """Mesh references in this process's messages; a bare `pickle` does not count."""

    sent_pending = 0  # pickled before their mesh was ready
    received = 0


class Readiness:
    """Pending, then ready or failed, once. What is posted while pending runs then, in order. Thread-safe."""

    __slots__ = ("_bytes", "_event", "_lock", "_queue", "error", "ready")

    def __init__(self) -> None:
        self.ready = False  # only ever set once all that was queued before has run
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._queue: deque[tuple[Action, OnError, int]] = deque()
        self._bytes = 0  # of the messages that wait

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

    def post(self, action: Action, on_error: OnError, size: int = 0) -> None:
        """Runs the action: now, when ready, or never; then `on_error` gets the reason. `size`: of the message that it is
        to send, for which there is room (wait_for_room)."""
        with self._lock:
            if not self.ready and self.error is None:
                self._queue.append((action, on_error, size))
                self._bytes += size
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
                action, on_error, size = self._queue.popleft()
                self._bytes -= size
            try:
                action()
            except Exception as error:
                on_error(error)
        self._event.set()

    def set_error(self, error: BaseException) -> None:
        with self._lock:
            self.error = error
            queue, self._queue = self._queue, deque()
        for _, on_error, _ in queue:
            on_error(error)
        self._event.set()

    def has_room(self, limits: Mapping[str, int]) -> bool:
        """Whether one more message may wait. As a mailbox, it takes the one that fills it."""
        with self._lock:
            over = (
                self._bytes > limits["mailbox_bytes_max"] or len(self._queue) > limits["mailbox_messages_max"]
            )
            return self.ready or self.error is not None or not over

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


# What a message takes beside its arguments, as in a mailbox.
_MESSAGE_BYTES = 384


def size_of(parts: Iterable[Any]) -> int:
    """Of a message that waits."""
    return _MESSAGE_BYTES + sum(memoryview(part).nbytes for part in parts)


def wait_for_room(
    limits: Mapping[str, int], find: Callable[[], Readiness | None], what: str, deadline: float | None
) -> bool:
    """Returns when one more message may wait for what `find` gives, or it gives None.

    What waits for one start is bounded as one mailbox is: a sender waits for room, which there is when the start is
    over. Threads that come at the same moment may go beyond by a message each.

    Args:
        deadline: a monotonic time; then it is False.

    Raises:
        ResourceExhausted: there was no room within send_wait_ms.
    """
    end = time.monotonic() + limits["send_wait_ms"] / 1000
    while (gate := find()) is not None and not gate.has_room(limits):
        now = time.monotonic()
        if deadline is not None and now >= min(deadline, end):
            return False
        if now >= end:
            named = {
                name: limits[name] for name in ("send_wait_ms", "mailbox_bytes_max", "mailbox_messages_max")
            }
            shown = [f"{name}={value}" for name, value in named.items()]
            raise ResourceExhausted(
                f"no room within {shown[0]} at {what}, which is being started: as much waits for it as a mailbox holds "
                f"({shown[1]}, {shown[2]})",
                named,
            )
        gate.wait_over(end - now if deadline is None else min(deadline, end) - now)
    return True
