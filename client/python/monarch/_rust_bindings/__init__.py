"""Names of a compiled package that existing programs import; no logic here."""

from __future__ import annotations

from monarch._compat.alias import alias

__getattr__ = alias(
    __name__,
    ("monarch._compat.absent", "has_tensor_engine"),
)
