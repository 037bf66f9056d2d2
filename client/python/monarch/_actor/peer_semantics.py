"""What other implementations of this API do on failures and this one does not, unless it is asked to.

`monarch.configure(strict_peer_semantics=True)`: a process in which an actor failed takes no further spawns, and a call
to a mesh that is known to be stopped fails the caller as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from monarch import _runtime
from monarch._config.layers import layers

if TYPE_CHECKING:
    from monarch._actor.context import Instance


def strict() -> bool:
    return bool(layers.effective["strict_peer_semantics"])


class UndeliverableMessage:
    """What `_handle_undeliverable_message` gets.

    Attributes:
        endpoint: the call, as "mesh.method()".
        error: why it cannot be delivered.
    """

    def __init__(self, endpoint: str, error: str) -> None:
        self.endpoint = endpoint
        self.error = error

    def __repr__(self) -> str:
        return f"undeliverable message for {self.endpoint}: {self.error}"


def fail_sender(sender: Instance, message: UndeliverableMessage) -> None:
    """Fails the actor that sent it, when it is through with what it does, unless it takes it back."""
    if sender.runner is not None:
        if sender.runner.object is None or not sender.runner.object._handle_undeliverable_message(message):
            sender.runner.abort(repr(message))
        return
    event = _runtime.encode_event(
        {"kind": "exception", "actor_class": "RootClientActor", "mesh": sender.name, "reason": repr(message)}
    )
    root = _runtime.Targets([sender.address], [0])
    sender.runtime.send(sender.actor, _runtime.ACTOR_FAILED, root, _runtime.NONE, event, [], None)
