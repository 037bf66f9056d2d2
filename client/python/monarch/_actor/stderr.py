"""What a thread of the library has to tell people."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Without a stderr, or with one that is closed, nobody can be told, and the thread goes on."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass
