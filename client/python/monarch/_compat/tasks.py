"""Tasks of a private runtime, for programs that were written against one: here each runs on a thread of its own.

A coroutine of a task awaits tasks, never futures of an event loop.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import math
import threading
import warnings
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from monarch._actor.future import running_loop

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class WouldBlockRuntime(RuntimeError):
    """A call that blocks was made on a thread that runs tasks."""


class _ThisThread(threading.local):
    runs_tasks = False
    may_block = True


_this_thread = _ThisThread()


def is_tokio_thread() -> bool:
    """Whether this thread runs a task."""
    return _this_thread.runs_tasks


def check_timeout(timeout: float) -> float:
    if not math.isfinite(timeout) or timeout < 0:
        raise ValueError(f"invalid timeout {timeout}: expected seconds, at least 0 and finite")
    return timeout


def _wait(result: concurrent.futures.Future[T], timeout: float | None = None) -> T:
    try:
        return result.result(timeout)
    except concurrent.futures.TimeoutError:
        if result.done():
            raise  # the task's own
        raise TimeoutError(f"no result within {timeout} s") from None


def _start(function: Callable[[], T], *, may_block: bool) -> concurrent.futures.Future[T]:
    result: concurrent.futures.Future[T] = concurrent.futures.Future()
    context = contextvars.copy_context()

    def run() -> None:
        _this_thread.runs_tasks, _this_thread.may_block = True, may_block
        try:
            value = context.run(function)
        except BaseException as error:
            result.set_exception(error)
        else:
            result.set_result(value)

    threading.Thread(target=run, name="monarch-task", daemon=True).start()
    return result


class Awaitable(Generic[T]):
    """What a task's coroutine can wait for."""

    def finish(self) -> T:
        """Blocks until there is a result."""
        raise NotImplementedError

    def __await__(self) -> Generator[Any, Any, T]:
        if running_loop() is not None:
            raise RuntimeError(f"{type(self).__name__} cannot be awaited in an asyncio loop")
        return cast(T, (yield self))


def _drive(coroutine: Coroutine[Any, Any, T]) -> T:
    step: Callable[[], Any] = lambda: coroutine.send(None)  # noqa: E731
    while True:
        try:
            waited_for = step()
        except StopIteration as end:
            return cast(T, end.value)
        try:
            if not isinstance(waited_for, Awaitable):
                raise RuntimeError(f"a task's coroutine awaits only tasks, not {waited_for!r}")
            value = waited_for.finish()
        except BaseException as error:
            step = lambda error=error: coroutine.throw(error)  # type: ignore[misc]  # noqa: E731
        else:
            step = lambda value=value: coroutine.send(value)  # type: ignore[misc]  # noqa: E731


class PythonTask(Awaitable[T]):
    """Work that has not begun, and can be begun once."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work

    @staticmethod
    def from_coroutine(coro: Coroutine[Any, Any, T]) -> PythonTask[T]:
        return PythonTask(lambda: _drive(coro))

    @staticmethod
    def spawn_blocking(fn: Callable[[], T]) -> Shared[T]:
        return Shared(_start(fn, may_block=True))

    @staticmethod
    def sleep(seconds: float) -> PythonTask[None]:
        return PythonTask(lambda: None if threading.Event().wait(seconds) else None)

    @staticmethod
    def select_one(tasks: Sequence[PythonTask[T]]) -> PythonTask[tuple[T, int]]:
        """The first result, and the index of its task."""

        def work() -> tuple[T, int]:
            running = [task._begin() for task in tasks]
            done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            index = next(i for i, result in enumerate(running) if result in done)
            return running[index].result(), index

        return PythonTask(work)

    def _take(self) -> Callable[[], T]:
        work, self._work = self._work, None
        if work is None:
            raise ValueError("PythonTask already consumed")
        return work

    def _begin(self) -> concurrent.futures.Future[T]:
        return _start(self._take(), may_block=False)

    def finish(self) -> T:
        return self._take()()

    def block_on(self) -> T:
        if not _this_thread.may_block:
            raise WouldBlockRuntime("block_on() was called in a task; await the task there")
        return _wait(self._begin())

    def spawn(self) -> Shared[T]:
        return Shared(self._begin())

    def spawn_handle(self) -> Handle[T]:
        return Handle(self._begin())

    def with_timeout(self, seconds: float) -> PythonTask[T]:
        return PythonTask(lambda: _wait(self._begin(), seconds))


class Shared(Awaitable[T]):
    """A task that was begun; its result can be taken any number of times."""

    def __init__(self, result: concurrent.futures.Future[T]) -> None:
        self._result = result

    @classmethod
    def from_value(cls, value: T) -> Shared[T]:
        result: concurrent.futures.Future[T] = concurrent.futures.Future()
        result.set_result(value)
        return cls(result)

    def finish(self) -> T:
        return _wait(self._result)

    def block_on(self) -> T:
        if not _this_thread.may_block:
            raise WouldBlockRuntime("block_on() was called in a task; await the result there")
        return _wait(self._result)

    def poll(self) -> T | None:
        """The result, or None while there is none."""
        return self._result.result() if self._result.done() else None

    def task(self) -> PythonTask[T]:
        return PythonTask(self.finish)


class Handle(Awaitable[T]):
    """Observes a task that was begun, from threads and event loops."""

    def __init__(self, result: concurrent.futures.Future[T]) -> None:
        self._result = result

    def wait(self, timeout: float | None) -> T:
        return _wait(self._result, timeout)

    def get(self, timeout: float | None = None) -> T:
        if is_tokio_thread():
            raise WouldBlockRuntime("get() was called in a task; use poll() there")
        if timeout is not None:
            check_timeout(timeout)
        if running_loop() is not None:
            warnings.warn("get() blocks the active event loop; use as_asyncio()", UserWarning, stacklevel=2)
        return self.wait(timeout)

    def poll(self) -> T | None:
        return self._result.result() if self._result.done() else None

    def as_asyncio(self) -> asyncio.Future[T]:
        """A new asyncio future of the running loop; cancelling it leaves the task alone."""
        loop = running_loop()
        if loop is None:
            raise RuntimeError("no running event loop")
        observer: asyncio.Future[T] = loop.create_future()

        def settle() -> None:
            if not observer.done():
                settle_future(observer, self._result.exception(), self._result)

        def done(_: concurrent.futures.Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # The loop is closed, and nobody waits in it any more.
                loop.call_soon_threadsafe(settle)

        self._result.add_done_callback(done)
        return observer

    def __await__(self) -> Generator[Any, Any, T]:
        return self.as_asyncio().__await__()


def settle_future(
    observer: asyncio.Future[T], error: BaseException | None, result: concurrent.futures.Future[T]
) -> None:
    if error is None:
        observer.set_result(result.result())
    else:
        fail_future(observer, error)


def fail_future(observer: asyncio.Future[Any], error: BaseException) -> None:
    if isinstance(error, StopIteration):
        error = RuntimeError("the result is a StopIteration, which cannot pass through a coroutine")
    observer.set_exception(error)
    observer.exception()  # Looked at: a dropped observer is no error.
