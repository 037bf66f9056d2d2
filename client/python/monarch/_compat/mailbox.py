"""Port addresses made by hand. They lead nowhere here: what is sent there comes back to the sender at once."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from monarch._actor import port
from monarch._actor.context import context
from monarch._compat.addresses import ActorAddr

R = TypeVar("R")


@dataclasses.dataclass(frozen=True)
class PortId:
    """A port of an actor."""

    actor_id: ActorAddr
    port: int

    def __str__(self) -> str:
        return f"{self.actor_id}[{self.port}]"


class UndeliverableMessageEnvelope:
    """A message that came back."""

    def __init__(self, sender: Any, dest: PortId) -> None:
        self._sender = sender
        self._dest = dest

    def sender(self) -> Any:
        """The identity of the actor that sent it."""
        return self._sender

    def dest(self) -> PortId:
        return self._dest

    def error_msg(self) -> str:
        return f"no message can be delivered to {self._dest}: the address was made by hand"


@dataclasses.dataclass(frozen=True)
class PortRef:
    """What messages can be sent to."""

    port_id: PortId

    def send(self, instance: Any, message: Any) -> None:
        """Hands the message back to the actor of `instance`, which may look at it and lives on."""
        actor = instance.runner.object if instance.runner is not None else None
        handle = getattr(actor, "_handle_undeliverable_message", None)
        if handle is not None:
            handle(UndeliverableMessageEnvelope(instance.actor_id, self.port_id))


class _AnyPort(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, port.Port)


class Port(port.Port[R], metaclass=_AnyPort):
    """A port over a hand-made address; for isinstance, every port is one."""

    def __init__(self, port_ref: PortRef, instance: Any = None, rank: int | None = None) -> None:
        self._ref = port_ref

    def send(self, obj: Any) -> None:
        self._ref.send(context().actor_instance, obj)

    def exception(self, exc: BaseException) -> None:
        self.send(exc)

    def __reduce__(self) -> Any:
        return (Port, (self._ref,))

    def __repr__(self) -> str:
        return f"<Port {self._ref.port_id}>"
