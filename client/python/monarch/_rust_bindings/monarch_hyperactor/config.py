"""Alias: names that live elsewhere."""

from __future__ import annotations

from monarch._compat.alias import alias

__getattr__ = alias(
    __name__,
    ("monarch.config", "Encoding clear_runtime_config configure get_global_config get_runtime_config"),
)
