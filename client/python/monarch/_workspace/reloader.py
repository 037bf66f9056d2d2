"""Modules of a workspace that are loaded in a process, and are loaded again when their files change."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import linecache
import os
import sys
import time
from types import ModuleType

from monarch._actor.actor import Actor
from monarch._actor.endpoint import endpoint
from monarch._workspace.receiver import ROOT_VARIABLE

Version = tuple[int, int]

# Of this process: the file that each module was loaded from, as far as it was looked at. In the order of the imports,
# in which a module follows what it imports; that of sys.modules is changed by reloading.
_loaded: dict[str, Version] = {}


class ModuleReloader(Actor):
    """One in each process for the time of a synchronisation: `note` before the files change, `reload` afterwards."""

    def __init__(self) -> None:
        self._noted_ns = time.time_ns()

    @endpoint
    def note(self) -> None:
        """Remembers the present files of all modules that are new."""
        self._noted_ns = time.time_ns()
        for name, (_, version) in _modules().items():
            _loaded.setdefault(name, version)

    @endpoint
    def reload(self) -> list[str]:
        """Reloads what has changed, and says what that was. RuntimeError if a module fails, after all others."""
        importlib.invalidate_caches()
        linecache.checkcache()
        reloaded: list[str] = []
        failed: list[str] = []
        present = _modules()
        for name in (*(name for name in _loaded if name in present), *(present.keys() - _loaded.keys())):
            module, version = present[name]
            # One that was imported meanwhile may be of the old file.
            known = _loaded.get(name, None if version[1] >= self._noted_ns else version)
            if known != version:
                try:
                    _reload(module)
                except Exception as error:
                    failed.append(f"{name}: {error!r}")
                    _loaded.setdefault(name, (0, 0))  # The next time it is tried again.
                    continue
                reloaded.append(name)
            _loaded[name] = version
        if failed:
            raise RuntimeError(f"module(s) that could not be reloaded: {'; '.join(failed)}")
        return reloaded


def _modules() -> dict[str, tuple[ModuleType, Version]]:
    """Those that have a file in the workspace directory, with its inode and the time of its last change."""
    out: dict[str, tuple[ModuleType, Version]] = {}
    root = os.environ.get(ROOT_VARIABLE)
    if not root:
        return out
    inside = os.path.join(os.path.realpath(root), "")
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name == "__main__" or not isinstance(file, str) or not os.path.realpath(file).startswith(inside):
            continue
        with contextlib.suppress(OSError):
            found = os.stat(file)
            out[name] = (module, (found.st_ino, found.st_ctime_ns))
    return out


def _reload(module: ModuleType) -> None:
    # Compiled code is told from that of an older file by the second and the size alone.
    with contextlib.suppress(OSError, NotImplementedError, TypeError):
        os.unlink(importlib.util.cache_from_source(module.__file__ or ""))
    importlib.reload(module)
