"""What a call asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monarch._actor.context import Context
    from monarch._actor.shape import Extent


class Call:
    """A decoded call: which method, in which extent."""

    __slots__ = ("concurrent", "context", "explicit", "extent", "function", "method")

    def __init__(self, method: str, extent: Extent, function: Any, explicit: bool, concurrent: bool) -> None:
        self.method = method
        self.extent = extent
        self.function = function
        self.explicit = explicit
        self.concurrent = concurrent
        self.context: Context | None = None  # of the last one that was handled: as a rule also of the next
