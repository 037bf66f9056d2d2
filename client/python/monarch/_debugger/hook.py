"""What `breakpoint()` does in a worker. Loads the debugger when it is reached."""

from __future__ import annotations

import os
import sys
from typing import Any

from monarch._actor.context import current


def install() -> None:
    sys.breakpointhook = _breakpoint


def _breakpoint(*args: Any, **kwargs: Any) -> Any:
    """In an actor a session with the operator; elsewhere, and where the user chose another debugger, as ever."""
    if current.get() is None or "PYTHONBREAKPOINT" in os.environ:
        return sys.__breakpointhook__(*args, **kwargs)
    from monarch._debugger.remote_pdb import set_trace

    set_trace(sys._getframe(1))
    return None
