"""An actor whose `__init__` runs: its thread does not read the mailbox meanwhile, and a stop must not wait for it."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from monarch import _runtime
from monarch._actor.cancel import mark

if TYPE_CHECKING:
    from monarch._runtime import Inbox, Message

# How often the process looks for stops while an `__init__` runs; never otherwise.
LOOK_S = 0.1
# An `__init__` that ends within this time after a stop is followed by `__cleanup__`, in its order.
STOP_GRACE_S = 0.5
# Messages taken from a mailbox ahead of their turn, to find those about failures and stops among them. What is beyond
# stays in the mailbox, where it counts towards its bounds.
AHEAD_MAX = 64


class Construction:
    """Thread-safe: the actor's thread ends it, the process's main thread looks into it."""

    def __init__(self, mailbox: Inbox) -> None:
        self._mailbox = mailbox
        self._lock = threading.Lock()
        self._came: deque[Message] = deque()
        self._stop: Message | None = None
        self._stop_at = 0.0
        self._over = False

    def overdue_stop(self) -> Message | None:
        """A stop that has waited for its time. The construction is given up then, and this returns nothing more."""
        with self._lock:
            if self._over:
                return None
            while self._stop is None and len(self._came) < AHEAD_MAX:
                message = self._mailbox.try_pop()
                if message is None:
                    break
                if message.kind == _runtime.CANCEL:
                    mark((message,), self._came)
                    continue
                self._came.append(message)
                if message.kind == _runtime.STOP_ACTOR and message.meta is not None:
                    self._stop, self._stop_at = message, time.monotonic()
            if self._stop is None or time.monotonic() - self._stop_at < STOP_GRACE_S:
                return None
            self._over = True
            self._came.remove(self._stop)
            return self._stop

    def left(self) -> deque[Message]:
        """Of a construction that was given up: the messages that came before."""
        return self._came

    def finish(self) -> deque[Message] | None:
        """What came during the construction; None if it was given up."""
        with self._lock:
            if self._over:
                return None
            self._over = True
            return self._came
