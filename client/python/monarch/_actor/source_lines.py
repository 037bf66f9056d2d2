"""Source lines of functions that travel by value, so that tracebacks and debuggers show them where the file is not.

They travel with the code, and not on demand: whoever sent it may be busy, or gone, when they are needed.
"""

from __future__ import annotations

import linecache
import os
import threading
from types import CodeType

# (number of the first line, text)
Lines = tuple[int, str]

_MAX_BYTES = 65536  # of one function; larger ones go without

_lock = threading.Lock()
_received: dict[str, list[str]] = {}


def lines_of(code: CodeType) -> Lines | None:
    """The lines of a function, if they can be had."""
    file = linecache.getlines(code.co_filename)
    if not file:
        return None
    first = code.co_firstlineno
    text = "".join(file[first - 1 : _last_line(code)])
    return (first, text) if text and len(text) <= _MAX_BYTES else None


def _last_line(code: CodeType) -> int:
    inner = [_last_line(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return max([code.co_firstlineno, *inner, *(line for _, _, line in code.co_lines() if line is not None)])


def keep(filename: str, lines: Lines) -> None:
    """Makes linecache know them, unless it can read the file itself."""
    first, text = lines
    with _lock:
        known = _received.get(filename)
        if known is None:
            if filename in linecache.cache or os.path.exists(filename):
                return
            known = _received[filename] = []
        added = text.splitlines(keepends=True)
        known.extend("\n" for _ in range(first - 1 + len(added) - len(known)))
        known[first - 1 : first - 1 + len(added)] = added
        # Without a time of change: linecache does not look for the file.
        linecache.cache[filename] = (sum(map(len, known)), None, known, filename)


def keep_file(filename: str, text: str) -> None:
    """Makes linecache know a whole file."""
    with _lock:
        lines = _received[filename] = text.splitlines(keepends=True)
        linecache.cache[filename] = (len(text), None, lines, filename)
