"""Alias: names that live elsewhere."""

from __future__ import annotations

from monarch._compat.alias import alias

__getattr__ = alias(
    __name__,
    ("monarch._actor.mesh_trait", "MeshTrait"),
    ("monarch._actor.shape", "Extent Point Region Shape Slice"),
    ("monarch._compat.shape", "NDSlice ShapeExt"),
)
