"""Runs an actor with async endpoints on an event loop of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from monarch import _runtime
from monarch._actor.actor import overrides
from monarch._actor.actor_runner import (
    ActorFailure,
    ActorRunner,
    cleanup_s,
)
from monarch._actor.cancel import is_wanted, mark
from monarch._actor.construction import AHEAD_MAX
from monarch._actor.event_loop import ActorEventLoop
from monarch._actor.exception_text import exception_event, format_exception, one_line
from monarch._actor.failure import FailureEvent, MeshFailure, raised_while_handling_event
from monarch._actor.hooks import CleanupOverLimit

if TYPE_CHECKING:
    from monarch._runtime import Message


def run_async(runner: ActorRunner, cls: Any, args: Any, kwargs: Any) -> None:
    """On the actor's thread; returns when the actor has ended."""
    loop = ActorEventLoop(runner.runtime)
    asyncio.set_event_loop(loop)
    try:
        runner.construct(cls, args, kwargs)
        runner.runtime.set_activity(b"")
        if not runner.ended:
            loop.run_until_complete(_AsyncActor(runner, loop).run())
        _cancel_all(loop)
    finally:
        loop.close()


def _cancel_all(loop: ActorEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=1))


class _AsyncActor:
    def __init__(self, runner: ActorRunner, loop: ActorEventLoop) -> None:
        self._runner = runner
        self._loop = loop
        self._backlog, runner.early = runner.early, deque()
        self._idle: asyncio.Future[None] | None = None
        self._cancels: list[Message] = []  # taken, and not looked at yet
        runner.cancel_waiters = set()
        self._urgent: set[asyncio.Task[Any]] = set()
        self._concurrent: set[asyncio.Task[Any]] = set()
        self._current: asyncio.Task[Any] | None = None
        self._ended = loop.create_future()
        self._ending = False

    async def run(self) -> None:
        runner = self._runner
        cookie = self._loop.bridge.add(self._pull)
        runner.mailbox.set_notifier(self._loop.bridge.notifier, cookie)
        dispatcher = self._loop.create_task(self._guarded(self._dispatch()))
        await self._ended
        runner.mailbox.set_notifier(None, 0)
        dispatcher.cancel()

    def _pull(self) -> None:
        """Takes what has come. What concerns the actor's life is not kept waiting by an endpoint that waits."""
        while len(self._backlog) < AHEAD_MAX:
            message = self._runner.mailbox.try_pop()
            if message is None:
                break
            kind = message.kind
            if kind == _runtime.CALL:
                self._backlog.append(message)
            elif kind == _runtime.CANCEL:
                self._cancels.append(message)
            elif self._current is not None:
                self._hurry(message)
            else:
                self._backlog.append(message)
        if self._cancels:
            mark(self._cancels, (*self._runner.in_flight.values(), *self._backlog))
        if self._cancels or len(self._backlog) >= AHEAD_MAX:  # Then one may be left at the mailbox's head.
            self._cancels.clear()
            self._runner.wake_cancel_waiters()
        if self._backlog and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _hurry(self, message: Message) -> None:
        task = self._loop.create_task(self._guarded(self._hurried(message)))
        self._urgent.add(task)
        task.add_done_callback(self._urgent.discard)

    async def _hurried(self, message: Message) -> None:
        await self._life(message)
        await self._after_message()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Whatever goes wrong here, those who wait for this actor have to hear of its end."""
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._ending = True
            self._end(exception_event(error), None)

    def _hurry_those_behind(self) -> None:
        """An endpoint begins to wait: what concerns the actor's life overtakes it."""
        behind = [message for message in self._backlog if message.kind != _runtime.CALL]
        for message in behind:
            self._backlog.remove(message)
            self._hurry(message)

    async def _dispatch(self) -> None:
        while not self._ending:
            if not self._backlog:
                self._pull()
            if not self._backlog:
                self._idle = self._loop.create_future()
                await self._idle
                continue
            message = self._backlog.popleft()
            if message.kind == _runtime.CALL:
                if is_wanted(message, self._runner.mailbox):
                    await self._call(message)
            else:
                await self._life(message)
            await self._after_message()

    async def _after_message(self) -> None:
        runner = self._runner
        if runner.abort_event is not None:
            await self._fail(runner.abort_event)
        elif runner.stop_reason is not None:
            await self._stop(runner.stop_reason, None)

    # --- calls ---

    async def _call(self, message: Message) -> None:
        runner = self._runner
        runner.in_flight[id(message)] = message
        runner.runtime.call_runs(message, len(runner.in_flight) == 1)
        try:
            call, args, kwargs = runner.prepare(message)
            if call.concurrent:
                task = self._loop.create_task(self._guarded(self._body(message, call, args, kwargs)))
                self._concurrent.add(task)
                task.add_done_callback(self._concurrent.discard)
                return
            result = call.function(runner.object, *args, **kwargs)
            if hasattr(result, "__await__"):
                self._current = asyncio.current_task()
                self._hurry_those_behind()
                try:
                    result = await result
                finally:
                    self._current = None
        except BaseException as error:
            await self._raised(message, error)
        else:
            runner.answer(message, call, result)

    async def _body(self, message: Message, call: Any, args: Any, kwargs: Any) -> None:
        try:
            result = await call.function(self._runner.object, *args, **kwargs)
        except BaseException as error:
            if self._ending:
                return  # Cancelled because the actor ends; its end answers the caller.
            await self._raised(message, error)
        else:
            if not self._ending:
                self._runner.answer(message, call, result)
                await self._after_message()

    async def _raised(self, message: Message, error: BaseException) -> None:
        if self._ending:
            return
        event = self._runner.event_of_raised(message, error)
        if event is not None:
            await self._fail(event)

    # --- supervision and the end ---

    async def _life(self, message: Message) -> None:
        if message.kind == _runtime.STOP_ACTOR and message.meta is not None:
            await self._stop(self._runner.reason_of(message), message)
        elif message.kind == _runtime.ACTOR_FAILED:
            await self._handle_failure(FailureEvent(message.event))

    async def _handle_failure(self, event: FailureEvent) -> None:
        runner = self._runner
        if not runner.is_news(event):
            return
        handler = runner.supervisor()
        try:
            handled: Any = handler is not None and handler(MeshFailure(event, runner.label()))
            if hasattr(handled, "__await__"):
                handled = await handled
        except BaseException as error:
            if not self._ending:
                await self._fail(raised_while_handling_event(event, format_exception(error), one_line(error)))
            return
        if not handled:
            await self._fail(runner.unhandled(event))

    async def _fail(self, event: dict[str, Any]) -> None:
        if self._ending:
            return
        self._ending = True
        runner = self._runner
        runner.stop_owned("its owner failed")
        await self._cancel_concurrent()
        shown = FailureEvent(event)
        with runner.limited(event, None):
            await self._clean_up(ActorFailure(shown.traceback or shown.reason))
        self._end(event, None)

    async def _stop(self, reason: str, request: Message | None) -> None:
        runner = self._runner
        if not self._ending:
            self._ending = True
            runner.stop_owned(reason)
            await self._cancel_concurrent()
            event = {"kind": "stopped", "reason": reason}
            with runner.limited(event, request):
                error = await self._clean_up(None)
            self._end(runner.ended_with(event, error), request)
        elif request is not None:
            runner.acknowledge(request)

    async def _cancel_concurrent(self) -> None:
        tasks = [task for task in self._concurrent if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=cleanup_s())

    async def _clean_up(self, error: Exception | None) -> BaseException | None:
        actor: Any = self._runner.object
        if actor is None or not overrides(type(actor), "__cleanup__"):
            return None
        try:
            result = actor.__cleanup__(error)
            if hasattr(result, "__await__"):
                work = asyncio.ensure_future(result)
                done, _ = await asyncio.wait((work,), timeout=cleanup_s())
                if not done:
                    work.cancel()
                    return CleanupOverLimit()
                work.result()
        except BaseException as raised:
            return raised
        return None

    def _end(self, event: dict[str, Any], request: Message | None) -> None:
        self._runner.finish(event, request)
        # Messages taken ahead are still unanswered.
        for message in self._backlog:
            self._runner.reply_failure(message, event)
        self._backlog.clear()
        if not self._ended.done():
            self._ended.set_result(None)
