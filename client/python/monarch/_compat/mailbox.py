"""Port addresses made by hand."""

from __future__ import annotations

import dataclasses

from monarch._compat.addresses import ActorAddr


@dataclasses.dataclass(frozen=True)
class PortId:
    """A port of an actor."""

    actor_id: ActorAddr
    port: int

    def __str__(self) -> str:
        return f"{self.actor_id}[{self.port}]"


@dataclasses.dataclass(frozen=True)
class PortRef:
    """What messages can be sent to."""

    port_id: PortId
