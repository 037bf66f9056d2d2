"""Modules that only say where their names live."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from monarch._compat import absent


def _find(home: str, name: str) -> Any:
    try:
        found = importlib.import_module(home)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{home}.".startswith(f"{error.name}."):
            raise  # by something that the home needs
        return absent.make(name)
    return getattr(found, name) if hasattr(found, name) else absent.make(name)


def alias(module: str, *homes: tuple[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module whose names live elsewhere; each of `homes` is (module, "Name Name ...").

    Looked up when first used, so that an import loads nothing that is not needed. A name that its home does not have
    imports all the same, and raises when it is used.
    """
    found = {name: home for home, names in homes for name in names.split()}

    def __getattr__(name: str) -> Any:
        home = found.get(name)
        if home is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = _find(home, name)
        setattr(sys.modules[module], name, value)
        return value

    # `from module import *` takes these.
    sys.modules[module].__dict__["__all__"] = [name for name in found if not name.startswith("_")]
    return __getattr__
