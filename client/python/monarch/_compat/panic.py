"""Faults on purpose, for tests of supervision."""

from __future__ import annotations

import ctypes
import threading
from typing import NoReturn


class PanicException(BaseException):
    """The end of native code that must not go on; it kills the actor."""


def panicking_function() -> NoReturn:
    """Ends the actor that calls it, as a crash of native code would that is caught at its edge."""
    raise PanicException("panicking_function was called")


def hold_gil_for_test(delay_secs: float, hold_secs: float) -> None:
    """Holds the interpreter's lock for a while, from another thread, without giving it up in between."""
    usleep = ctypes.PyDLL(None).usleep  # PyDLL calls without releasing the lock

    def hold() -> None:
        threading.Event().wait(delay_secs)
        usleep(ctypes.c_uint(int(hold_secs * 1e6)))

    threading.Thread(target=hold, name="monarch-hold-gil", daemon=True).start()
