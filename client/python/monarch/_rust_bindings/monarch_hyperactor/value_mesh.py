"""Alias: names that live elsewhere."""

from __future__ import annotations

from monarch._compat.alias import alias

__getattr__ = alias(
    __name__,
    ("monarch._actor.value_mesh", "ValueMesh"),
    ("monarch._compat.value_mesh", "_make_test_value_mesh"),
)
