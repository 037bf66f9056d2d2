"""Calls whose callers no longer wait for the answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from monarch import _runtime

if TYPE_CHECKING:
    from monarch._runtime import Inbox, Message


def mark(cancels: Iterable[Message], calls: Iterable[Message]) -> None:
    """Marks those of `calls` that the `cancels`, taken from the same mailbox, are for."""
    cancelled = {(cancel.call_id, cancel.sender[:3]) for cancel in cancels}
    for call in calls:
        if (call.call_id, call.sender[:3]) in cancelled:
            call.cancelled = True


def is_wanted(message: Message, mailbox: Inbox) -> bool:
    """Whether a message that was taken from the mailbox ahead of its turn has to be handled now that it comes."""
    return message.kind != _runtime.CALL or not (message.is_late or mailbox.is_cancelled(message))
