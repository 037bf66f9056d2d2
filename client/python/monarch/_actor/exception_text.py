"""Exceptions as text. What a program's own exceptions do when they are asked for it harms nobody."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

_OWN = os.path.dirname(__file__)


def format_exception(error: BaseException) -> str:
    """The traceback without the frames of this package."""
    import traceback

    trace: TracebackType | None = error.__traceback__
    while (
        trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_OWN)
    ):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def one_line(error: BaseException) -> str:
    import traceback

    return traceback.format_exception_only(type(error), error)[-1].strip()


def text_of(error: BaseException) -> str:
    """Its str(), which is code of the user's and may raise."""
    try:
        return str(error)
    except BaseException:
        return one_line(error)


def exception_event(error: BaseException) -> dict[str, Any]:
    return {"kind": "exception", "reason": one_line(error), "traceback": format_exception(error)}
