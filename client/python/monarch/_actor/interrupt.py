"""What Ctrl-C shows: where the program waited, and not how this package did."""

from __future__ import annotations

import sys
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
