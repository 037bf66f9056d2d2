"""Alias: names that live elsewhere."""

from __future__ import annotations

from monarch._compat.alias import alias

__getattr__ = alias(
    __name__,
    (
        "monarch._actor.mock",
        "_actor_registry get_actor_class get_actor_mock_registry_state patch_actor set_actor_mock_registry_state",
    ),
)
