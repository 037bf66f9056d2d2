"""The receiving end of a queue, as a name for annotations."""

from __future__ import annotations

from typing import Any


class Receiver:
    """Only a name: queues are ports here (`monarch.actor.Channel`)."""

    def __init__(self) -> None:
        raise NotImplementedError("a bare queue's receiver does not exist here; use monarch.actor.Channel")

    def __class_getitem__(cls, item: Any) -> Any:
        return cls
