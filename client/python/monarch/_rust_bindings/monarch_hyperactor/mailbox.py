"""Alias: names that live elsewhere."""

from __future__ import annotations

from monarch._compat.alias import alias

__getattr__ = alias(
    __name__,
    ("monarch._compat.mailbox", "PortId PortRef UndeliverableMessageEnvelope"),
    ("monarch._compat.absent", "Mailbox"),
    ("monarch._actor.port", "PortReceiver"),
)
