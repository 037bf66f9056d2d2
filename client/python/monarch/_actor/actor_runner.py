"""Runs one actor on a thread of its own: creation, calls, supervision, end."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from monarch import _runtime
from monarch._actor import owned, pickling
from monarch._actor.activity import show_oldest
from monarch._actor.actor import is_async_class, overrides
from monarch._actor.call import Call
from monarch._actor.cancel import is_wanted
from monarch._actor.construction import Construction
from monarch._actor.context import Context, Instance, current
from monarch._actor.endpoint import INVOKE, INVOKE_EXPLICIT, EndpointProperty, invoke
from monarch._actor.exception_text import exception_event, format_exception, one_line, text_of
from monarch._actor.failure import (
    FailureEvent,
    MeshFailure,
    raised_while_handling_event,
    unhandled_child_event,
)
from monarch._actor.hooks import CleanupOverLimit, complete
from monarch._actor.port import Port
from monarch._actor.shape import Extent
from monarch._actor.unpicklable import cannot_load
from monarch._config.layers import layers

if TYPE_CHECKING:
    from monarch._actor.actor import Actor
    from monarch._actor.process import Process
    from monarch._debugger.remote_pdb import RemotePdb
    from monarch._runtime import Inbox, Message


def cleanup_s() -> float:
    """The time that `__cleanup__` has."""
    return layers.seconds("cleanup_timeout")


# Later than an async actor's own limit, which cancels the clean-up.
_CLEANUP_MARGIN_S = 0.2


class ActorFailure(Exception):
    """What `__cleanup__` of a failed actor gets: its text is the error."""


class ActorRunner:
    """One actor of this process. The methods run on its thread, unless they say otherwise."""

    def __init__(self, owner: Process, actor: int, mailbox: Inbox, create: Message) -> None:
        self.process = owner
        self.runtime = owner.runtime
        self.actor = actor
        self.mailbox = mailbox
        self.instance: Instance | None = None
        self.object: Actor | None = None
        self.ended = False
        self.abort_event: dict[str, Any] | None = None
        self.stop_reason: str | None = None
        self.debugger: RemotePdb | None = None  # since the first breakpoint() in the present endpoint
        self.in_flight: dict[int, Message] = {}  # by identity: calls taken and not answered
        self.cancel_waiters: set[Any] | None = None  # of an async actor: asyncio futures
        self._create = create
        self._meta: Any = create.meta
        self._finished = threading.Lock()  # taken by whoever ends the actor, and kept
        self.construction: Construction | None = Construction(mailbox)  # until `__init__` has ended
        self.early: deque[Message] = deque()  # came meanwhile
        self._end_event: dict[str, Any] = {}
        self._calls: dict[bytes, Call | None] = {}

    def start(self) -> None:
        """On the thread that serves tasks."""
        thread = threading.Thread(target=self._main, name=f"monarch-{self._meta['name']}", daemon=True)
        self.process.actor_threads.add(thread)
        thread.start()

    def abort(self, reason: str) -> None:  # on any thread
        self.abort_event = self.abort_event or {"kind": "exception", "reason": reason}
        self._wake()

    def stop_soon(self, reason: str) -> None:
        """On any thread."""
        self.stop_reason = self.stop_reason or reason
        self._wake()

    def _wake(self) -> None:
        """The actor may be idle, or wait in an endpoint: a message without content makes it look."""
        target = _runtime.Targets([(*self.runtime.self_proc, self.actor)], [0])
        with contextlib.suppress(_runtime.StatusError):  # The session is over, and the actor with it.
            self.runtime.send(self.actor, _runtime.STOP_ACTOR, target, _runtime.NONE, b"", [], None)

    # --- creation ---

    def _main(self) -> None:
        self.runtime.bind_actor(self.actor)
        try:
            self._live()
        except BaseException as error:
            # Whatever it was, those who wait for this actor have to hear of its end.
            self.finish(exception_event(error), None)

    def _live(self) -> None:
        try:
            loaded = self._load()
        except BaseException as error:
            self._refuse(error)
            return
        cls = loaded[0]
        if is_async_class(cls):
            from monarch._actor.async_actor import run_async

            run_async(self, *loaded)
        else:
            self.construct(*loaded)
            while self.early and not self.ended:
                if is_wanted(message := self.early.popleft(), self.mailbox):
                    self.runtime.call_runs(message, True)
                    self._handle(message)
            self._run()

    def _load(self) -> tuple[type[Actor], tuple[Any, ...], dict[str, Any]]:
        parts = self._create.parts
        info = {**self._meta, **pickling.loads(parts[:1])}
        address = (*self.runtime.self_proc, self.actor)
        self.instance = Instance(self.runtime, address, info)
        self.instance.runner = self
        current.set(Context(self.instance, self._meta["rank"], self.instance.rank.extent))
        loaded = pickling.loads(parts[1:])
        if len(loaded) == 4:
            self.instance.mocks = loaded[3]
        return loaded[:3]

    def _refuse(self, error: BaseException) -> None:
        """The class or the arguments cannot be loaded here: the spawn fails, and its owner is told."""
        meta = self._meta
        where = f"rank {meta['rank']}"
        if self.instance is not None and meta["labels"]:
            where += f" {self.instance.rank!r}"
        reason = (
            f"error spawning actor mesh: {meta['class']} of mesh {meta['name']} cannot be loaded on {where}: "
        )
        event = {"kind": "exception", "reason": reason + one_line(error)}
        if not isinstance(error, (ImportError, AttributeError)):
            # For a missing module or name the frames are those of pickle alone.
            event["traceback"] = f"{event['reason']}\n{format_exception(error)}"
        self._end_construction()
        self.finish(event, None)

    def construct(self, cls: type[Actor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.runtime.set_activity(b"__init__")
        del self._create  # Its bytes may lie in the spawner's segment.
        try:
            self.object = cls(*args, **kwargs)
        except BaseException as error:
            self.fail(exception_event(error))
        if not self._end_construction():
            # It was stopped meanwhile.
            self.stop_owned("its owner was stopped")
            self._clean_up(None)
            self.object = None

    def _end_construction(self) -> bool:
        """False if it was given up."""
        construction, self.construction = self.construction, None
        came = construction.finish() if construction is not None else None
        if came is None:
            return False
        self.early = came
        if self.ended:
            self._answer_early()
        return True

    def give_up_construction(self, request: Message, left: deque[Message]) -> None:
        """On a thread of its own: a stop came, and `__init__` does not end."""
        reason = self.reason_of(request)
        self.ended = True
        self.stop_owned(reason)
        self.early = left
        self.finish({"kind": "stopped", "reason": reason}, request)

    # --- messages of an actor without a loop ---

    def _run(self) -> None:
        mailbox, receive = self.mailbox, self.runtime.receive
        while not self.ended:
            message = receive(mailbox, None)
            if message is None:
                return
            self._handle(message)
            del message  # Its bytes may be lent, and the next one may be long in coming.

    def _handle(self, message: Message) -> None:
        kind = message.kind
        if kind == _runtime.CALL:
            self._handle_call(message)
        elif kind == _runtime.ACTOR_FAILED:
            self.handle_failure(FailureEvent(message.event))
        elif kind == _runtime.STOP_ACTOR and message.meta is not None:
            self.stop(self.reason_of(message), message)
        if self.abort_event is not None or self.stop_reason is not None:
            self.after_message()

    def after_message(self) -> None:
        if self.ended:
            return
        if self.abort_event is not None:
            self.fail(self.abort_event)
        elif self.stop_reason is not None:
            self.stop(self.stop_reason, None)

    @staticmethod
    def reason_of(message: Message) -> str:
        meta: Any = message.meta
        return str(meta.get("reason", "stopped")) if isinstance(meta, dict) else "stopped"

    def _handle_call(self, message: Message) -> None:
        self.in_flight[id(message)] = message
        try:
            call, args, kwargs = self.prepare(message)
            result = call.function(self.object, *args, **kwargs)
        except BaseException as error:
            event = self.event_of_raised(message, error)
            if event is not None:
                self.fail(event)
        else:
            self.answer(message, call, result)

    def prepare(self, message: Message) -> tuple[Call, Any, Any]:
        """The method and its arguments; sets the context. Raises what loading them raises."""
        meta = message.meta_bytes
        call = self._calls.get(meta) or self._decode(meta)
        assert self.instance is not None
        context = call.context
        if context is None or context._kept or context._rank != message.rank or context._call is not None:
            context = call.context = Context(self.instance, message.rank, call.extent, call.method)
            context._kept = self.cancel_waiters is not None  # An async actor's tasks take it along.
        if current.get() is not context:
            current.set(context)
        if message.payload_kind == _runtime.PICKLE:
            try:
                args, kwargs = pickling.loads(message.parts)
            except BaseException as error:
                raise cannot_load(error, f"an argument of {call.method}()") from None
        else:
            args, kwargs = _runtime.decode_value(bytes(message.parts[0])) if message.parts else (), {}
        if call.explicit:
            args = (Port(message.sender, message.port_id, message.rank), *args)
        context._call = message
        return call, args, kwargs

    def _decode(self, meta: bytes) -> Call:
        decoded: Any = _runtime.decode_value(meta)
        method, labels, sizes = decoded
        call = self._find(method, Extent(labels, sizes))
        if call.explicit:
            # From now on, what it has taken may be answered by whoever was handed a port.
            self.mailbox.set_others_answer()
        if len(self._calls) < 1024:
            self._calls[meta] = call
        return call

    def _find(self, method: str, extent: Extent) -> Call:
        if method in (INVOKE, INVOKE_EXPLICIT):
            return Call(method, extent, invoke, method == INVOKE_EXPLICIT, False)
        declared = getattr(type(self.object), method, None)
        if not isinstance(declared, EndpointProperty):
            raise AttributeError(f"{type(self.object).__qualname__} has no endpoint {method!r}")
        return Call(method, extent, declared._method, declared.takes_port, declared.concurrent)

    # --- answers ---

    def answer(self, message: Message, call: Call, result: Any) -> None:
        if self.debugger is not None:
            debugger, self.debugger = self.debugger, None
            debugger.endpoint_done()
        if not call.explicit and message.port_id:
            try:
                if message.payload_kind == _runtime.VALUE:
                    kind, meta, parts = _runtime.VALUE, b"", [_runtime.encode_value(result)]
                else:
                    kind, (meta, parts) = _runtime.PICKLE, pickling.dumps_value(result)
            except Exception as error:
                self._reply_exception(message, error)
                return
            self._reply(message, _runtime.REPLY, kind, meta, parts)
        else:
            self._settle(message)

    def _settle(self, message: Message) -> None:
        """In the context of its endpoint, which is through."""
        self.in_flight.pop(id(message), None)
        if (context := current.get()) is not None and context._call is message:
            context._call = None  # Its bytes may be lent.
            if self.cancel_waiters:
                self.wake_cancel_waiters()
        if self.cancel_waiters is not None:
            show_oldest(self)

    def wake_cancel_waiters(self) -> None:
        """In the loop of an async actor: they look again."""
        for waiter in self.cancel_waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def event_of_raised(self, message: Message, error: BaseException) -> dict[str, Any] | None:
        """An endpoint raised: to its caller if that waits for an answer; else what the actor fails with."""
        if self.debugger is not None:
            debugger, self.debugger = self.debugger, None
            debugger.endpoint_raised(error)
        call = self._calls.get(message.meta_bytes)
        explicit = call is not None and call.explicit
        to_caller = isinstance(error, Exception) or (call is not None and call.concurrent)
        if message.port_id and to_caller and not explicit:
            return self._reply_exception(message, error)
        return exception_event(error)

    def _reply_exception(self, message: Message, error: BaseException) -> dict[str, Any] | None:
        meta = {
            "type": type(error).__qualname__,
            "message": text_of(error),
            "traceback": format_exception(error),
            "base": not isinstance(error, Exception),
        }
        try:
            parts = pickling.dumps(error)
        except Exception as unpicklable:
            event = exception_event(error)
            why = f"(the exception cannot be pickled: {one_line(unpicklable)})"
            event["reason"] += f" {why}"
            event["traceback"] += f"{why}\n"
            return event
        self._reply(message, _runtime.EXCEPTION, _runtime.PICKLE, _runtime.encode_value(meta), parts)
        return None

    def _reply(self, message: Message, kind: int, payload_kind: int, meta: bytes, parts: list[Any]) -> None:
        self._settle(message)
        try:
            self.runtime.reply(message, kind, payload_kind, meta, parts)
        except _runtime.StatusError as error:
            # The answer cannot be sent, for its size or because there is no room; the caller has to hear something.
            event = {"kind": "exception", "reason": f"the answer could not be sent: {error}"}
            self.reply_failure(message, event)

    def reply_failure(self, message: Message, event: dict[str, Any]) -> None:
        if not message.port_id:
            return
        with contextlib.suppress(_runtime.StatusError):  # Its process may be gone.
            self.runtime.reply(message, _runtime.FAILURE, _runtime.NONE, self._encode(event), [])

    def _encode(self, event: dict[str, Any]) -> bytes:
        meta = self._meta
        coordinates = repr(self.instance.rank) if self.instance is not None and meta["labels"] else ""
        return _runtime.encode_event(
            {
                "mesh": meta["mesh"],
                "rank": meta["rank"],
                "rank_label": coordinates,
                "actor_class": meta["class"],
                "actor": (*self.runtime.self_proc, self.actor),
                "host_name": self.runtime.host_name,
                "pid": os.getpid(),
                **event,
            }
        )

    # --- supervision ---

    def is_news(self, event: FailureEvent) -> bool:
        """Whether it is the first failure of that member of what this actor owns."""
        return self.instance is None or self.instance.is_news(event)

    def handle_failure(self, event: FailureEvent) -> None:
        if not self.is_news(event):
            return
        handler = self.supervisor()
        try:
            handled = handler is not None and complete(handler(MeshFailure(event, self.label())))
        except BaseException as error:
            self.fail(raised_while_handling_event(event, format_exception(error), one_line(error)))
            return
        if not handled:
            self.fail(self.unhandled(event))

    def supervisor(self) -> Callable[[MeshFailure], Any] | None:
        if self.object is None or not overrides(type(self.object), "__supervise__"):
            return None
        return self.object.__supervise__

    def label(self) -> str:
        return self.instance.label if self.instance is not None else "<root>"

    def at_work(self) -> str:
        """What keeps it from stopping, for people. On any thread."""
        metas: list[Any] = [message.meta for message in list(self.in_flight.values())]
        return f"{self.label()} runs {', '.join(f'{meta[0]}()' for meta in metas) or 'no endpoint'}"

    def unhandled(self, event: FailureEvent) -> dict[str, Any]:
        return unhandled_child_event(event, self.label())

    # --- the end ---

    def fail(self, event: dict[str, Any]) -> None:
        """Takes along what the actor owns, cleans up, and tells the owner."""
        if self.ended:
            return
        self.ended = True
        self.stop_owned("its owner failed")
        shown = FailureEvent(event)
        with self.limited(event, None):
            self._clean_up(ActorFailure(shown.traceback or shown.reason))
        self.finish(event, None)

    def stop(self, reason: str, request: Message | None) -> None:
        if not self.ended:
            self.ended = True
            self.stop_owned(reason)
            event = {"kind": "stopped", "reason": reason}
            with self.limited(event, request):
                error = self._clean_up(None)
            self.finish(self.ended_with(event, error), request)
        elif request is not None:
            self.acknowledge(request)

    def ended_with(self, event: dict[str, Any], error: BaseException | None) -> dict[str, Any]:
        """How an actor ends that was stopped, after what `__cleanup__` raised."""
        if isinstance(error, CleanupOverLimit):
            return self._late(event)
        return event if error is None else exception_event(error)

    @staticmethod
    def _late(event: dict[str, Any]) -> dict[str, Any]:
        reason = f"{event.get('reason', '')} (its __cleanup__ did not end within {cleanup_s():g} s)"
        return {**event, "reason": reason}

    @contextlib.contextmanager
    def limited(self, event: dict[str, Any], request: Message | None) -> Iterator[None]:
        """Around `__cleanup__`: when it takes too long, the actor ends without it."""
        if self.object is None or not overrides(type(self.object), "__cleanup__"):
            yield
            return
        timer = threading.Timer(cleanup_s() + _CLEANUP_MARGIN_S, self.finish, (self._late(event), request))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def finish(self, event: dict[str, Any], request: Message | None) -> None:
        """Ends the actor, once, and answers the stop that asked for it. Thread-safe."""
        if not self._finished.acquire(blocking=False):
            return
        self.end(event)
        if request is not None:
            self.acknowledge(request)

    def acknowledge(self, request: Message) -> None:
        """Answers a stop."""
        with contextlib.suppress(_runtime.StatusError):  # Whoever asked may be gone.
            self.runtime.reply(request, _runtime.REPLY, _runtime.NONE, b"", [])

    def stop_owned(self, reason: str) -> None:
        if self.instance is not None:
            owned.stop_owned(self.instance, reason)

    def _clean_up(self, error: Exception | None) -> BaseException | None:
        """Runs `__cleanup__`; returns what it raised."""
        if self.object is None or not overrides(type(self.object), "__cleanup__"):
            return None
        try:
            complete(self.object.__cleanup__(error))
        except BaseException as raised:
            return raised
        return None

    def end(self, event: dict[str, Any]) -> None:
        self.ended = True
        self.runtime.end_actor(self.actor, event)
        self._end_event = event
        left, self.in_flight = self.in_flight, {}
        for message in left.values():
            self.reply_failure(message, event)
        self._answer_early()
        self.process.runners.pop(self.actor, None)
        self.object = None

    def _answer_early(self) -> None:
        for message in self.early:
            if message.kind == _runtime.STOP_ACTOR:
                self.acknowledge(message)
            else:
                self.reply_failure(message, self._end_event)
        self.early.clear()
