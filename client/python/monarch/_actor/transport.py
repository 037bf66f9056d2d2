"""The choice of how hosts reach each other."""

from __future__ import annotations

from monarch._actor.process import exists
from monarch._config.layers import layers
from monarch._config.transport import BindSpec, ChannelTransport

_chosen: BindSpec | None = None


def enable_transport(transport: ChannelTransport | str) -> None:
    """Chooses the kind of transport, before anything else of this package is used.

    Args:
        transport: a kind, its name ("tcp", "ipc", "tls", "metatls", "metatls-hostname"), or a URL.

    Raises:
        RuntimeError: the client exists already with another transport, or another one was chosen before.
    """
    global _chosen
    wanted = BindSpec(transport)
    if exists():
        now = BindSpec(layers.effective["default_transport"])
        if wanted != now:
            raise RuntimeError(
                f"this process uses the transport {now} already and cannot change to {wanted}; call enable_transport() "
                "before anything else"
            )
        return
    if _chosen is not None and _chosen != wanted:
        raise RuntimeError(f"the transport {_chosen} was enabled already; it cannot be changed to {wanted}")
    layers.configure({"default_transport": wanted}, 1)
    _chosen = wanted
