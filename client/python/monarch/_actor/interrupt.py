"""What Ctrl-C shows: where the program waited, and not how this package did."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType


def shorten_interrupts() -> None:
    """Leaves the frames of this package out of the traceback of a KeyboardInterrupt that ends the program."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            _cut_own_frames(trace)
            error.__context__ = None
        previous(kind, error, trace)

    sys.excepthook = hook


def _cut_own_frames(trace: TracebackType | None) -> None:
    while trace is not None:
        inner = trace.tb_next
        if inner is not None and inner.tb_frame.f_globals.get("__name__", "").startswith("monarch."):
            trace.tb_next = None
            return
        trace = inner


@contextlib.contextmanager
def interruptible_in_a_loop() -> Iterator[None]:
    """Around a wait that blocks a running event loop: there asyncio.run() answers the first Ctrl-C by cancelling its
    task, which does not run while the loop is blocked."""
    import signal

    before = signal.getsignal(signal.SIGINT)
    of_asyncio = getattr(getattr(before, "func", None), "__name__", "") == "_on_sigint"
    if not of_asyncio or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        import asyncio

        if getattr(asyncio.current_task(), "_must_cancel", False):
            raise asyncio.CancelledError  # It came before; the task hears of it here, for it will not await.
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# A signal that comes between the interpreter's last look at its flags and its sleep on a lock ends no sleep, which is
# common enough on a loaded machine: so each sleep has an end, and the interpreter looks again.
_SLEEP_MAX_S = 0.5


def wait_interruptibly(event: threading.Event, timeout: float | None) -> None:
    """`event.wait(timeout)` that ends by a Ctrl-C at whatever moment that comes."""
    _in_sleeps(event.wait, None if timeout is None else time.monotonic() + timeout)


def acquire_interruptibly(lock: threading.Lock, deadline: float | None) -> bool:
    """The same for a lock, until a monotonic time; whether it was acquired."""
    return _in_sleeps(lambda seconds: lock.acquire(timeout=seconds), deadline)


def _in_sleeps(sleep: Callable[[float], bool], deadline: float | None) -> bool:
    while True:
        left = _SLEEP_MAX_S if deadline is None else max(0.0, deadline - time.monotonic())
        if sleep(min(left, _SLEEP_MAX_S)):
            return True
        if left <= _SLEEP_MAX_S and deadline is not None:
            return False
