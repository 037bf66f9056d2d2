"""Alias: names that live elsewhere."""

from __future__ import annotations

from monarch._compat.alias import alias

__getattr__ = alias(
    __name__,
    ("monarch._actor.actor", "Actor"),
    ("monarch._actor.actor_mesh", "ActorMesh"),
    ("monarch._actor.errors", "ActorError"),
    ("monarch._actor.context", "Context Instance context current_actor_name current_rank current_size"),
    ("monarch._actor.endpoint", "Accumulator Endpoint as_endpoint endpoint send"),
    ("monarch._actor.port", "Channel PortReceiver RankedPortReceiver"),
    ("monarch._compat.mailbox", "Port"),
    ("monarch._actor.value_mesh", "ValueMesh"),
    ("monarch._actor.session", "shutdown_context"),
    ("monarch._actor.attach", "attach"),
    ("monarch._actor.transport", "enable_transport"),
    ("monarch._compat.client", "_client_context _context"),
    ("monarch._compat.absent", "IN_PAR"),
)
