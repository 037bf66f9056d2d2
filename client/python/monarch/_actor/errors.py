"""What callers catch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from monarch._actor.failure import FailureEvent

if TYPE_CHECKING:
    from monarch._runtime import StatusError

_REMOTE_HEADER = "Traceback of where the remote call failed (most recent call last):"


# Of those who did not answer, in a message.
_RANKS_SHOWN = 16


class _CallError:
    """Of a `call` of several members: what each of them answered, by its rank in the mesh that was called.

    Attributes:
        failures: the error of each member that failed, this one too; empty for other ways of calling.
        values: the values that did arrive, loaded when they are looked at. They do not travel with a pickled error.
    """

    failures: Mapping[int, BaseException] = {}
    values: Mapping[int, Any] = {}

    def _state(self) -> dict[str, Any] | None:
        return {name: value for name, value in vars(self).items() if name != "values"} or None


class ActorError(_CallError, Exception):
    """An exception that an endpoint raised, handed to its caller. The actor lives on.

    Attributes:
        exception: the original exception object; None if it could not be sent or loaded.
        message: which call failed.
        exception_formatted: the remote traceback as text.
        failures, values: of a `call`, what each member answered, by rank.
    """

    def __init__(self, exception: BaseException | None, message: str, exception_formatted: str) -> None:
        super().__init__(exception, message, exception_formatted)
        self.exception = exception
        self.message = message
        self.exception_formatted = exception_formatted

    def __str__(self) -> str:
        body = self.exception_formatted.removeprefix("Traceback (most recent call last):\n")
        return f"{self.message}\n {_REMOTE_HEADER}\n{body}"

    def __reduce__(self) -> Any:
        return (type(self), self.args, self._state())


class DeadlockError(_CallError, RuntimeError):
    """Actors wait for each other, and this call closes the cycle: it cannot be answered.

    Of the calls of a cycle one fails, so that the others go on. It was not made, if any of them had not begun.

    Attributes:
        cycle: what waits for what, as "actor.endpoint", from what keeps the callee busy to what it was called for. A
            call on the way that has not begun says what it is queued behind.
        endpoint: the call that failed, as "mesh.method()"; None if that is not known.
        failures, values: of a `call`, what came from each member until then, by rank.
    """

    def __init__(self, cycle: tuple[str, ...], endpoint: str | None = None) -> None:
        super().__init__(cycle, endpoint)
        self.cycle = cycle
        self.endpoint = endpoint

    def __str__(self) -> str:
        call = f"{self.endpoint} cannot be answered" if self.endpoint else "deadlock"
        return f"{call}: each of these waits for the next: {' -> '.join(self.cycle)}"

    def __reduce__(self) -> Any:
        return (type(self), (self.cycle, self.endpoint), self._state())


class CallCancelledError(RuntimeError):
    """The result was given up by `Future.cancel()`."""


class CallTimeoutError(_CallError, TimeoutError):
    """A call's own time limit has passed, and answers are missing. The callees have been told.

    Attributes:
        endpoint: the call, as "mesh.method()".
        timeout: the limit, in seconds.
        ranks: who did not answer in time, by the rank in the mesh that was called.
        failures, values: of a `call`, what came from the others in time, by rank.
    """

    def __init__(self, endpoint: str, timeout: float, ranks: tuple[int, ...], mesh: str) -> None:
        shown = ", ".join(str(rank) for rank in ranks[:_RANKS_SHOWN])
        if len(ranks) > _RANKS_SHOWN:
            shown += f" and {len(ranks) - _RANKS_SHOWN} more"
        super().__init__(
            f"Endpoint call {endpoint} failed, no answer within {timeout:g} s from "
            f"{'rank' if len(ranks) == 1 else 'ranks'} {shown} of {mesh}"
        )
        self.endpoint = endpoint
        self.timeout = timeout
        self.ranks = ranks
        self._mesh = mesh

    def __reduce__(self) -> Any:
        return (type(self), (self.endpoint, self.timeout, self.ranks, self._mesh), self._state())


class SupervisionError(_CallError, RuntimeError):
    """What was called is dead or stopped: an actor, its process, or its host.

    Attributes:
        endpoint: the call that failed, as "mesh.method()"; None outside a call.
        failures, values: of a `call`, what came from each member until then, by rank.
    """

    def __init__(self, message: str, endpoint: str | None = None, event: FailureEvent | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.endpoint = endpoint
        self._event = event

    @property
    def event(self) -> FailureEvent | None:
        """What happened, in fields: kind, code (the signal's number, the exit status), rank, pid, ...

        The error is raised, and its text is final, as soon as a death is known. This waits, at most 2 s, for the dead
        process's last lines of stderr, its native back-trace, and whether the kernel killed it for lack of memory.
        """
        return self._event.completed() if self._event is not None else None

    def __str__(self) -> str:
        if self.endpoint is None:
            return self.message
        return f"Endpoint call {self.endpoint} failed, {self.message}"

    def __reduce__(self) -> Any:
        return (type(self), (self.message, self.endpoint, self._event), self._state())


class SpawnError(SupervisionError, ValueError):
    """Processes or actors could not be started: which ranks, in which phase, and why.

    Attributes:
        events: one for each rank that failed, if the daemon told.
        limit: the name of the limit that was reached, or "".
    """

    def __init__(
        self,
        message: str,
        endpoint: str | None = None,
        event: FailureEvent | None = None,
        events: tuple[FailureEvent, ...] = (),
        limit: str = "",
    ) -> None:
        super().__init__(message, endpoint, event)
        self.events = events
        self.limit = limit

    def __reduce__(self) -> Any:
        arguments = (self.message, self.endpoint, self._event, self.events, self.limit)
        return (type(self), arguments, self._state())


class ResourceExhausted(RuntimeError):
    """A limit was reached, and waiting for room did not help: what was to be sent was not.

    Attributes:
        limits: the limits that may be the reason, by name: {"mailbox_bytes_max": 67108864}.
    """

    def __init__(self, message: str, limits: Mapping[str, int] | None = None) -> None:
        super().__init__(message)
        self.limits = dict(limits or {})

    def __reduce__(self) -> Any:
        return (type(self), (str(self), self.limits))


def send_error(error: StatusError) -> Exception:
    """What a caller sees of a message that could not be sent."""
    if error.code == "RESOURCE_EXHAUSTED":
        found = re.findall(r"\b([a-z]+(?:_[a-z]+)+)=(\d+)", error.message)
        return ResourceExhausted(error.message, {name: int(value) for name, value in found})
    return error
