"""What callers catch."""

from __future__ import annotations

from typing import Any

from monarch._actor.failure import FailureEvent

_REMOTE_HEADER = "Traceback of where the remote call failed (most recent call last):"


class ActorError(Exception):
    """An exception that an endpoint raised, handed to its caller. The actor lives on.

    Attributes:
        exception: the original exception object; None if it could not be sent or loaded.
        message: which call failed.
        exception_formatted: the remote traceback as text.
    """

    def __init__(self, exception: BaseException | None, message: str, exception_formatted: str) -> None:
        super().__init__(exception, message, exception_formatted)
        self.exception = exception
        self.message = message
        self.exception_formatted = exception_formatted

    def __str__(self) -> str:
        body = self.exception_formatted.removeprefix("Traceback (most recent call last):\n")
        return f"{self.message}\n {_REMOTE_HEADER}\n{body}"


class SupervisionError(RuntimeError):
    """What was called is dead or stopped: an actor, its process, or its host.

    Attributes:
        endpoint: the call that failed, as "mesh.method()"; None outside a call.
        event: what happened, in fields: kind, code (the signal's number, the exit status), rank, pid, ...
    """

    def __init__(self, message: str, endpoint: str | None = None, event: FailureEvent | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.endpoint = endpoint
        self.event = event

    def __str__(self) -> str:
        if self.endpoint is None:
            return self.message
        return f"Endpoint call {self.endpoint} failed, {self.message}"

    def __reduce__(self) -> Any:
        return (type(self), (self.message, self.endpoint, self.event))


class SpawnError(SupervisionError, ValueError):
    """Processes or actors could not be started: which ranks, in which phase, and why.

    Attributes:
        failures: one event for each rank that failed, if the daemon told.
        limit: the name of the limit that was reached, or "".
    """

    def __init__(
        self,
        message: str,
        endpoint: str | None = None,
        event: FailureEvent | None = None,
        failures: tuple[FailureEvent, ...] = (),
        limit: str = "",
    ) -> None:
        super().__init__(message, endpoint, event)
        self.failures = failures
        self.limit = limit

    def __reduce__(self) -> Any:
        return (type(self), (self.message, self.endpoint, self.event, self.failures, self.limit))
