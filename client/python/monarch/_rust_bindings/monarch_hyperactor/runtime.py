"""Alias: names that live elsewhere."""

from __future__ import annotations

from monarch._compat.alias import alias

__getattr__ = alias(
    __name__,
    (
        "monarch._compat.absent",
        "_force_unsanctioned_gil_on_control_plane _get_gil_on_control_plane _reset_gil_on_control_plane",
    ),
)
