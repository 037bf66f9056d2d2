"""From the messages that answer a call to a future's result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from monarch import _runtime
from monarch._actor import pickling
from monarch._actor.errors import ActorError, CallTimeoutError, DeadlockError, SpawnError, SupervisionError
from monarch._actor.failure import FailureEvent, failure_text
from monarch._actor.unpicklable import cannot_load, summary_of

if TYPE_CHECKING:
    from monarch._actor.future import Future
    from monarch._actor.members import Members
    from monarch._actor.shape import Shape
    from monarch._runtime import Message


class Description(NamedTuple):
    """Of a call, for errors."""

    call: str  # "mesh.method()"
    owner_label: str  # of the mesh's owner
    mesh: str
    actor_class: str
    owner_is_gone: bool = False  # and with its process whoever would know more of the mesh
    limit: float | None = None  # seconds; then each answer that is missing is a CANCEL
    members: Members | None = None  # of the mesh


# How the runtime stops an actor whose owner's process is gone.
OWNER_DIED = "owner died"
# An explicit response port sends port messages.
_VALUES = (_runtime.REPLY, _runtime.PORT_MESSAGE)


def _value(message: Message) -> Any:
    if message.payload_kind == _runtime.PICKLE:
        try:
            return pickling.loads(message.parts)
        except BaseException as error:
            raise cannot_load(error, "the answer") from None
    parts = message.parts
    return _runtime.decode_value(bytes(parts[0])) if parts else None


def _same_payload(a: Message, b: Message) -> bool:
    # One part is copied as it is loaded; arrays lie in further parts, and each rank has its own.
    return a.payload_kind == b.payload_kind and len(a.parts) == 1 == len(b.parts) and a.parts[0] == b.parts[0]


def _is_deadlock(message: Message) -> bool:
    meta: Any = message.meta if message.kind == _runtime.EXCEPTION else None
    return bool(meta) and "deadlock" in meta


def _raised_error(message: Message, description: Description) -> ActorError | DeadlockError:
    meta: Any = message.meta or {}
    if "deadlock" in meta:
        return DeadlockError(tuple(meta["deadlock"]), description.call)
    exception: BaseException | None = None
    formatted = meta.get("traceback", "")
    if message.parts:
        try:
            exception = pickling.loads(message.parts)
        except BaseException as error:  # Code of the exception's own; what it does is no news for the caller.
            formatted += f"\n(the exception itself cannot be loaded here: {summary_of(error)})"
    if not formatted:
        formatted = f"{meta.get('type', '')}: {meta.get('message', '')}\n"
    how = "failed with BaseException." if meta.get("base") else "failed."
    return ActorError(exception, f"Actor call {description.call.removesuffix('()')} {how}", formatted)


def failure_error(
    event: FailureEvent, call: str | None = None, owner_label: str = "<root>"
) -> SupervisionError:
    """What a caller gets for the end of what it called."""
    if event.kind == "start_failed" or event.reason.startswith("error spawning "):
        return SpawnError(event.reason or event.summary, call, event)
    return SupervisionError(failure_text(event, owner_label), call, event)


def _late_error(ranks: tuple[int, ...], description: Description) -> CallTimeoutError:
    mesh = f"{description.mesh} ({description.actor_class})"
    return CallTimeoutError(description.call, description.limit or 0.0, ranks, mesh)


def error_of(message: Message, description: Description) -> BaseException:
    if message.kind == _runtime.EXCEPTION:
        return _raised_error(message, description)
    if message.kind == _runtime.FAILURE:
        event = message.event
        # Who is gone without a trace cannot say what it was.
        event["mesh"] = event["mesh"] or description.mesh
        event["actor_class"] = event["actor_class"] or description.actor_class
        shown = FailureEvent(event)
        if description.members is not None and shown.kind != "stopped":
            description.members.doubt(event)
        if shown.kind == "stopped" and (description.owner_is_gone or shown.reason == OWNER_DIED):
            return SupervisionError(
                f"timed out reaching controller {description.owner_label} for mesh {description.mesh}. "
                "Assuming controller's proc is dead",
                description.call,
                shown,
            )
        return failure_error(shown, description.call, description.owner_label)
    return ValueError(f"an answer of an unknown kind: {message.kind}")


def _closed(description: Description) -> EOFError:
    return EOFError(f"Port closed: no answer to {description.call} will come")


def collect_one(
    describe: Callable[[], Description], rank: int | None = None
) -> Callable[[Future[Any], Message | None], None]:
    """The first message is the answer. `rank`: of who was called, unless the message says that."""

    def collect(future: Future[Any], message: Message | None) -> None:
        if message is None:
            future._set_error(_closed(describe()))
        elif message.kind in _VALUES:
            future._set_value(_value(message))
        elif message.kind == _runtime.CANCEL:
            silent = message.rank if rank is None else rank
            future._set_error(_late_error((silent,), describe()))
        else:
            future._set_error(error_of(message, describe()))

    return collect


class _Arrived(Mapping[int, Any]):
    """Values by rank, each loaded when it is first looked at."""

    def __init__(self, answers: dict[int, Message]) -> None:
        self._answers = answers
        self._loaded: dict[int, Any] = {}

    def __getitem__(self, rank: int) -> Any:
        if rank not in self._loaded:
            self._loaded[rank] = _value(self._answers[rank])
        return self._loaded[rank]

    def __iter__(self) -> Iterator[int]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def __repr__(self) -> str:
        return repr(dict(self))


def _error_with_all(
    answers: list[Message | None], rank: int | None, description: Description
) -> BaseException:
    """The error of `rank`, or None for that of those without an answer; it carries what the others answered."""
    failures: dict[int, BaseException] = {}
    values: dict[int, Message] = {}
    for at, answer in enumerate(answers):
        if answer is None:
            continue
        if answer.kind in _VALUES:
            values[at] = answer
        else:
            failures[at] = error_of(answer, description)
    if rank is None:
        silent = tuple(at for at, answer in enumerate(answers) if answer is None)
        error: BaseException = _late_error(silent, description)
    else:
        error = failures[rank]
    if isinstance(error, (ActorError, CallTimeoutError, DeadlockError, SupervisionError)):
        error.failures = failures
        error.values = _Arrived(values)
    return error


def collect_all(
    describe: Callable[[], Description], shape: Shape, count: int
) -> Callable[[Future[Any], Message | None], None]:
    """One message from each rank; values stay pickled until they are looked at."""
    from monarch._actor.shape import Shape, Slice
    from monarch._actor.value_mesh import ValueMesh

    answers: list[Message | None] = [None] * count
    missing = count

    def collect(future: Future[Any], message: Message | None) -> None:
        nonlocal missing
        if message is None:
            future._set_error(_closed(describe()))
            return
        if message.kind == _runtime.CANCEL:
            future._set_error(_error_with_all(answers, None, describe()))
            return
        answers[message.rank] = message
        missing -= 1
        if message.kind == _runtime.FAILURE or _is_deadlock(message):
            # Others may never answer.
            future._set_error(_error_with_all(answers, message.rank, describe()))
            return
        if missing:
            return
        for rank, answer in enumerate(answers):
            if answer is not None and answer.kind not in _VALUES:
                future._set_error(_error_with_all(answers, rank, describe()))
                return
        dense = Shape(shape.labels, Slice.new_row_major(shape.ndslice.sizes))
        messages = cast("list[Message]", answers)
        values: ValueMesh[Any] = ValueMesh._from_payloads(dense, messages, _value, _same_payload)
        for rank, answer in enumerate(messages):
            if answer.meta_bytes == pickling.REFERS:
                with contextlib.suppress(Exception):  # Raised again by who looks at it.
                    values.get(rank)
        future._set_value(values)

    return collect


def collect_done(
    count: int, on_failure: Callable[[FailureEvent], BaseException | None], value: Any = None
) -> Callable[[Future[Any], Message | None], None]:
    """Empty answers from `count` ranks; the first failure that `on_failure` makes an error of is the result."""
    missing = count

    def collect(future: Future[Any], message: Message | None) -> None:
        nonlocal missing
        missing -= 1
        if message is not None and message.kind == _runtime.FAILURE:
            error = on_failure(FailureEvent(message.event))
            if error is not None:
                future._set_error(error)
                return
        if message is None or missing <= 0:
            future._set_value(value)

    return collect
