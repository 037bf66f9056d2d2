"""Alias: names that live elsewhere."""

from __future__ import annotations

from monarch._compat.alias import alias

__getattr__ = alias(
    __name__,
    ("monarch._actor.attach", "attach_to_workers"),
    ("monarch._actor.worker_loop", "run_worker_loop_forever"),
)
