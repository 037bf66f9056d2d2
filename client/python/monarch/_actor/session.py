"""The end of the client's session, when a program wants it before its own end."""

from __future__ import annotations

from monarch._actor.future import Future
from monarch._actor.process import shutdown


def shutdown_context() -> Future[None]:
    """Ends all processes of this client. The client cannot be started again in this process."""
    return Future._from_function(shutdown)
