"""Old home of names of `monarch.actor`."""

from __future__ import annotations

import warnings
from typing import Any

from monarch._src.actor import proc_mesh as _home

__all__ = _home.__all__

warnings.warn("monarch.proc_mesh is deprecated; import from monarch.actor", DeprecationWarning, stacklevel=2)


def __getattr__(name: str) -> Any:
    return getattr(_home, name)
