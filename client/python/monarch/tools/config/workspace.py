"""Directories of the client that are copied to the hosts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Workspace:
    """Local directories, and where each lies under `$WORKSPACE_DIR` on the hosts.

    Args:
        dirs: directories, each of which keeps its name; or a mapping from directory to its place, "" for the top.
        env: the Python environment that goes along; None for none.
    """

    def __init__(
        self,
        dirs: Sequence[Path | str] | Mapping[Path | str, Path | str] | None = None,
        env: Any = None,
    ) -> None:
        if isinstance(dirs, (str, os.PathLike)):
            raise TypeError(
                f"dirs is a sequence of directories or a mapping, not the path {os.fspath(dirs)!r}"
            )
        if isinstance(dirs, Mapping):
            self.dirs = {Path(local): str(remote) for local, remote in dirs.items()}
        else:
            self.dirs = {Path(local): Path(local).name for local in dirs or ()}
        self.env = env

    @staticmethod
    def null() -> Workspace:
        """Nothing to copy."""
        return Workspace()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Workspace):
            return NotImplemented
        return self.dirs == other.dirs and self.env == other.env

    def __repr__(self) -> str:
        return f"Workspace(dirs={self.dirs!r}, env={self.env!r})"
