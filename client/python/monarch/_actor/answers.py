"""From the messages that answer a call to a future's result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from monarch import _runtime
from monarch._actor import pickling
from monarch._actor.errors import ActorError, SpawnError, SupervisionError
from monarch._actor.failure import FailureEvent, failure_text
from monarch._actor.unpicklable import cannot_load, summary_of

if TYPE_CHECKING:
    from monarch._actor.future import Future
    from monarch._actor.shape import Shape
    from monarch._runtime import Message

# (call as "mesh.method()", label of the mesh's owner, mesh, class)
Description = tuple[str, str, str, str]
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


def _actor_error(message: Message, description: Description) -> ActorError:
    call = description[0]
    meta: Any = message.meta or {}
    exception: BaseException | None = None
    formatted = meta.get("traceback", "")
    if message.parts:
        try:
            exception = pickling.loads(message.parts)
        except BaseException as error:  # Code of the exception's own; what it does is no news for the caller.
            formatted += f"\n(the exception itself cannot be loaded here: {summary_of(error)})"
    if not formatted:
        formatted = f"{meta.get('type', '')}: {meta.get('message', '')}\n"
    return ActorError(exception, f"Actor call {call.removesuffix('()')} failed.", formatted)


def failure_error(
    event: FailureEvent, call: str | None = None, owner_label: str = "<root>"
) -> SupervisionError:
    """What a caller gets for the end of what it called."""
    if event.kind == "start_failed" or event.reason.startswith("error spawning "):
        return SpawnError(event.reason or event.summary, call, event)
    return SupervisionError(failure_text(event, owner_label), call, event)


def error_of(message: Message, description: Description) -> BaseException:
    if message.kind == _runtime.EXCEPTION:
        return _actor_error(message, description)
    if message.kind == _runtime.FAILURE:
        call, owner_label, mesh, cls = description
        event = message.event
        # Who is gone without a trace cannot say what it was.
        event["mesh"] = event["mesh"] or mesh
        event["actor_class"] = event["actor_class"] or cls
        return failure_error(FailureEvent(event), call, owner_label)
    return ValueError(f"an answer of an unknown kind: {message.kind}")


def _closed(description: Description) -> EOFError:
    return EOFError(f"Port closed: no answer to {description[0]} will come")


def collect_one(describe: Callable[[], Description]) -> Callable[[Future[Any], Message | None], None]:
    """The first message is the answer."""

    def collect(future: Future[Any], message: Message | None) -> None:
        if message is None:
            future._set_error(_closed(describe()))
        elif message.kind in _VALUES:
            future._set_value(_value(message))
        else:
            future._set_error(error_of(message, describe()))

    return collect


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
        if message.kind == _runtime.FAILURE:
            # Others may never answer.
            future._set_error(error_of(message, describe()))
            return
        answers[message.rank] = message
        missing -= 1
        if missing:
            return
        for answer in answers:
            if answer is not None and answer.kind not in _VALUES:
                future._set_error(error_of(answer, describe()))
                return
        dense = Shape(shape.labels, Slice.new_row_major(shape.ndslice.sizes))
        future._set_value(
            ValueMesh._from_payloads(dense, cast("list[Message]", answers), _value, _same_payload)
        )

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
