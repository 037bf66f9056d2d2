"""Distributed actors with supervision. The actor API is `monarch.actor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monarch._actor.shape import Extent, Region, Shape, Slice
    from monarch._actor.shape import Slice as NDSlice

__all__ = ["Extent", "NDSlice", "Region", "Shape", "Slice"]

_SHAPES = {"Extent": "Extent", "NDSlice": "Slice", "Region": "Region", "Shape": "Shape", "Slice": "Slice"}


def __getattr__(name: str) -> Any:
    # Looked up when first used: a worker starts with `import monarch` alone.
    if name in _SHAPES:
        from monarch._actor import shape

        return getattr(shape, _SHAPES[name])
    if name == "__version__":
        from monarch._runtime import VERSION

        return VERSION
    raise AttributeError(f"module 'monarch' has no attribute {name!r}")
