"""Modules that only say where their names live."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any


def alias(module: str, *homes: tuple[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module whose names live elsewhere; each of `homes` is (module, "Name Name ...").

    Looked up when first used, so that an import loads nothing that is not needed.
    """
    found = {name: home for home, names in homes for name in names.split()}

    def __getattr__(name: str) -> Any:
        home = found.get(name)
        if home is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(sys.modules[module], name, value)
        return value

    # `from module import *` takes these.
    sys.modules[module].__dict__["__all__"] = [name for name in found if not name.startswith("_")]
    return __getattr__
