"""Alias: names that live elsewhere."""

from __future__ import annotations

from monarch._compat.alias import alias

__getattr__ = alias(
    __name__,
    ("monarch._compat.absent", "PendingMessage pickle"),
    (
        "monarch._compat.pickling",
        "_get_mesh_pop_count _get_pending_reserve_count _reset_mesh_pop_count _reset_pending_reserve_count",
    ),
)
