"""`Future` over a task: what `Future._from_coro` makes, with its states in the open."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from monarch._actor.future import LOOP_WARNING, Future, running_loop
from monarch._compat.tasks import (
    Handle,
    PythonTask,
    WouldBlockRuntime,
    check_timeout,
    fail_future,
    is_tokio_thread,
)

if TYPE_CHECKING:
    import asyncio

__all__ = ["Future", "TaskFuture", "log_with_tracing"]

R = TypeVar("R")


class _Unawaited(NamedTuple):
    coro: PythonTask[Any]


class _Complete(NamedTuple):
    value: Any


class _Exception(NamedTuple):
    exe: BaseException


class _Handle(NamedTuple):
    handle: Handle[Any]


class _Taken(NamedTuple):
    pass


def log_with_tracing(level: int, message: str, extra: dict[str, Any], stacklevel: int = 1) -> None:
    """Notes that somebody blocks where something else has to run."""
    logging.getLogger("monarch").log(level, message, extra=extra, stacklevel=stacklevel + 1)


class TaskFuture(Future[R]):
    """Begins its task when it is first observed."""

    __slots__ = ("_status",)

    _status: _Unawaited | _Complete | _Exception | _Handle | _Taken

    @classmethod
    def make(cls, coro: Coroutine[Any, Any, R] | PythonTask[R]) -> TaskFuture[R]:
        self: TaskFuture[R] = object.__new__(cls)
        task = coro if isinstance(coro, PythonTask) else PythonTask.from_coroutine(coro)
        self._status = _Unawaited(task)
        return self

    def _take_inner(self) -> PythonTask[R]:
        status = self._status
        if not isinstance(status, _Unawaited):
            raise ValueError("Future has already been awaited or resolved.")
        self._status = _Taken()
        return status.coro

    def _observed(self) -> Handle[R]:
        """The running task."""
        status = self._status
        if isinstance(status, _Unawaited):
            status = self._status = _Handle(status.coro.spawn_handle())
        if isinstance(status, _Handle):
            return status.handle
        raise ValueError("Future was consumed.")

    def get(self, timeout: float | None = None) -> R:
        in_loop, in_task = running_loop() is not None, is_tokio_thread()
        if in_loop or in_task:
            where = {"context": "asyncio" if in_loop else "tokio"}
            log_with_tracing(logging.DEBUG, "Future.get() in an event loop", extra=where, stacklevel=2)
        status = self._status
        if isinstance(status, _Complete):
            return cast(R, status.value)
        if isinstance(status, _Exception):
            raise status.exe
        if isinstance(status, _Taken):
            raise ValueError("Future was consumed.")
        if in_task:
            raise WouldBlockRuntime(
                "Future.get() would block a task; observe the Future from a synchronous or asyncio context"
            )
        if timeout is not None:
            check_timeout(timeout)
        if in_loop:
            warnings.warn(LOOP_WARNING, UserWarning, stacklevel=2)
        if timeout is not None or isinstance(status, _Handle):
            return self._observed().wait(timeout)
        try:
            value = cast(R, status.coro.block_on())
        except Exception as error:
            self._status = _Exception(error)
            raise
        self._status = _Complete(value)
        return value

    def as_asyncio(self) -> asyncio.Future[R]:
        loop = running_loop()
        if loop is None:
            raise RuntimeError("as_asyncio() needs a running event loop")
        status = self._status
        if not isinstance(status, (_Complete, _Exception)):
            return self._observed().as_asyncio()
        observer: asyncio.Future[R] = loop.create_future()
        if isinstance(status, _Complete):
            observer.set_result(status.value)
        else:
            fail_future(observer, status.exe)
        return observer

    def __await__(self) -> Generator[Any, None, R]:
        if running_loop() is not None:
            return self.as_asyncio().__await__()
        if not is_tokio_thread():
            raise ValueError("a Future is awaited where there is no active event loop; use get()")
        status = self._status
        if isinstance(status, _Unawaited):
            raise RuntimeError(
                "Future cannot be awaited on a Tokio thread; observe it from an asyncio loop or synchronous context."
            )
        if isinstance(status, _Handle):
            raise ValueError("the Future is observed elsewhere and not awaitable on a tokio thread")
        if isinstance(status, _Taken):
            raise ValueError("Future was consumed.")
        raise ValueError("already converted into a synchronous future; use get()")

    def is_settled(self) -> bool:
        return isinstance(self._status, (_Complete, _Exception))

    def __repr__(self) -> str:
        return f"<Future {type(self._status).__name__.lstrip('_').lower()}>"
