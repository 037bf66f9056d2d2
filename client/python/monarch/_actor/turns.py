"""One piece of work at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType


class Turns:
    """Keeps works on the same thing apart. Thread-safe; not reentrant.

    `with turns:` waits for its turn. What is posted runs at once if nobody has the turn, else right after, on the thread
    that has it; so whoever posts never waits for another's work.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = False
        self._posted: deque[Callable[[], None]] = deque()

    def post(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._posted.append(work)
            if self._taken:
                return
            self._taken = True
        self._leave()

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._taken)
            self._taken = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        while True:
            with self._changed:
                if not self._posted:
                    self._taken = False
                    self._changed.notify()
                    return
                work = self._posted.popleft()
            work()
