"""A mesh that may still be being made, as programs see it that look behind our classes."""

from __future__ import annotations

from typing import Any

from monarch._compat.tasks import Awaitable


class MeshHandle(Awaitable[Any]):
    """Gives the mesh, once it is ready."""

    def __init__(self, mesh: Any) -> None:
        self._mesh = mesh

    def finish(self) -> Any:
        self._mesh._core.readiness.wait()
        return self._mesh

    block_on = finish

    def poll(self) -> Any:
        """None while the mesh is not ready."""
        return self._mesh if self._mesh._core.readiness.ready else None
