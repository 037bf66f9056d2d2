"""What Ctrl-C shows: where the program waited, and not how this package did."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
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
    if timeout is None:
        while not event.wait(_SLEEP_MAX_S):
            pass
        return
    deadline = time.monotonic() + timeout
    while not event.wait(max(0.0, min(_SLEEP_MAX_S, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            return
