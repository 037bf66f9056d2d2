"""Alias: names that live elsewhere."""

from __future__ import annotations

from monarch._compat.alias import alias

__getattr__ = alias(
    __name__,
    ("monarch._compat.absent", "LoggingManager flush_all_proc_mesh_logs"),
    ("monarch._compat.client", "_pending_flush_tasks"),
)
