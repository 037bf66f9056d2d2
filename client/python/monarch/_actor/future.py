"""The result of work that is under way."""

from __future__ import annotations

import contextlib
import contextvars
import math
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from monarch._actor.errors import CallCancelledError
from monarch._actor.interrupt import interruptible_in_a_loop, wait_interruptibly
from monarch._actor.receiver import Receiver

if TYPE_CHECKING:
    import asyncio

    from monarch._compat.tasks import PythonTask
    from monarch._runtime import Message

R = TypeVar("R")

_PENDING, _VALUE, _ERROR = 0, 1, 2
_COROUTINE_FLAGS = 0x80 | 0x200  # CO_COROUTINE, CO_ASYNC_GENERATOR

LOOP_WARNING = (
    "Future.get() blocks the thread while it has an active event loop, so nothing else runs in that loop. "
    "Use `await future`, or `future.as_asyncio()` where an asyncio future is wanted."
)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that runs in this thread, without importing asyncio for the answer."""
    events = sys.modules.get("_asyncio") or sys.modules.get("asyncio.events")
    if events is None:
        return None
    loop: asyncio.AbstractEventLoop | None = events._get_running_loop()
    return loop


def _called_from_notebook_cell(frame: FrameType | None) -> bool:
    """Whether the caller is plain code of a notebook cell: the kernel's loop runs around it, and is not its business."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or getattr(shell, "kernel", None) is None:
        return False
    while frame is not None:
        if frame.f_code.co_name == "<module>" or frame.f_code.co_name.startswith("<cell"):
            return True
        if frame.f_code.co_flags & _COROUTINE_FLAGS:
            return False
        frame = frame.f_back
    return False


def check_timeout(timeout: float) -> float:
    timeout = float(timeout)
    if math.isnan(timeout) or math.isinf(timeout) or timeout < 0:
        raise ValueError(f"invalid timeout: {timeout}")
    return timeout


class Future(Generic[R]):
    """The result of an operation of Monarch: `get()` it in plain code, `await` it in a coroutine.

    It can be observed any number of times, from any thread and any event loop. The futures of endpoint calls stand
    for work that has begun; dropping one does not stop it.
    """

    __slots__ = (
        "__weakref__",
        "_collect",
        "_done_event",
        "_observers",
        "_receiver",
        "_result",
        "_start",
        "_state",
    )

    _state: int
    _result: Any
    _receiver: Receiver | None
    _collect: Callable[[Any, Message | None], None] | None
    _start: Callable[[], R] | None
    _done_event: threading.Event | None
    _observers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[R]]] | None

    def __init__(self) -> None:
        raise TypeError("Future objects are returned by Monarch operations, not made by calling the class")

    @classmethod
    def _make(cls) -> Future[R]:
        self = object.__new__(cls)
        self._state = _PENDING
        self._result = None
        self._receiver = None
        self._collect = None
        self._start = None
        self._done_event = None
        self._observers = None
        return self

    @classmethod
    def _from_receiver(
        cls, receiver: Receiver, collect: Callable[[Future[R], Message | None], None]
    ) -> Future[R]:
        """Completed by `collect`, which gets the receiver's messages one by one until it sets the result."""
        # As _make: a call more would be a good part of this.
        self: Future[R] = object.__new__(cls)
        self._state = _PENDING
        self._result = None
        self._receiver = receiver
        self._collect = collect
        self._start = None
        self._done_event = None
        self._observers = None
        return self

    @classmethod
    def _from_function(cls, function: Callable[[], R], *, eager: bool = False) -> Future[R]:
        """What `function` returns or raises, on a thread of its own, begun at once or when first observed."""
        self = cls._make()
        self._start = function
        self._done_event = threading.Event()
        if eager:
            self._begin()
        return self

    @classmethod
    def _from_coro(cls, coro: Coroutine[Any, Any, R] | PythonTask[R]) -> Future[R]:
        """For programs that make futures themselves; the coroutine awaits tasks, and begins when first observed."""
        from monarch._compat.task_future import TaskFuture

        return TaskFuture.make(coro)

    @classmethod
    def _from_value(cls, value: R) -> Future[R]:
        self = cls._make()
        self._set(_VALUE, value)
        return self

    @classmethod
    def _from_error(cls, error: BaseException) -> Future[R]:
        self = cls._make()
        self._set(_ERROR, error)
        return self

    # --- for those who complete it ---

    def _set_value(self, value: R) -> None:
        self._set(_VALUE, value)

    def _set_error(self, error: BaseException) -> None:
        self._set(_ERROR, error)

    def _set(self, state: int, result: Any) -> None:
        with _observers_lock:
            if self._state != _PENDING:
                return
            self._result = result
            self._state = state
            observers, self._observers = self._observers, None
        self._collect = None
        if self._done_event is not None:
            self._done_event.set()
        here = running_loop() if observers else None
        for loop, future in observers or ():
            if loop is here:
                self._resolve(future)
                continue
            # A loop that is closed has nobody who waits any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._resolve, future)

    def _resolve(self, future: asyncio.Future[R]) -> None:
        if future.done():
            return
        if self._state == _VALUE:
            future.set_result(self._result)
        elif isinstance(self._result, StopIteration):
            future.set_exception(
                RuntimeError("the result is a StopIteration, which cannot pass through a coroutine")
            )
        else:
            future.set_exception(self._result)
            # Taken for looked at: whoever awaits it gets it, and a dropped observer is no error.
            future.exception()

    def cancel(self) -> bool:
        """Gives the result up: whoever waits for it, or asks later, gets CallCancelledError at once.

        Returns whether the future is cancelled: False if it was done before. Calls that have not begun are dropped;
        an endpoint that runs is not interrupted, but can look at `context().cancelled`. Futures of a stream or a
        channel are given up one by one, and nobody else hears of it; a thread that blocks in one of those returns with
        the next message. Thread-safe, may be repeated.
        """
        receiver = self._receiver
        self._set(_ERROR, CallCancelledError("the result was given up by cancel()"))
        cancelled = self._state == _ERROR and isinstance(self._result, CallCancelledError)
        if cancelled and receiver is not None and receiver.single:
            receiver.cancel()
        return cancelled

    def is_settled(self) -> bool:
        """Whether get() has nothing to wait for. An answer settles nothing before somebody waits for it."""
        return self._state != _PENDING

    def feed(self, message: Message | None) -> None:
        collect = self._collect
        if collect is None:
            return
        try:
            collect(self, message)
        except BaseException as error:  # The message is taken: another look would wait for ever.
            self._set(_ERROR, error)

    def _begin(self) -> None:
        with _observers_lock:
            start, self._start = self._start, None
        if start is None:
            return
        context = contextvars.copy_context()

        def run() -> None:
            try:
                value = context.run(start)
            except BaseException as error:
                self._set(_ERROR, error)
            else:
                self._set(_VALUE, value)

        threading.Thread(target=run, name="monarch-future", daemon=True).start()

    # --- for those who wait ---

    def get(self, timeout: float | None = None) -> R:
        """Blocks for the result. TimeoutError after `timeout` seconds; a later get() or await may still succeed."""
        if self._state == _PENDING:
            if timeout is not None:
                timeout = check_timeout(timeout)
            if running_loop() is None:
                self._wait(timeout)
            else:
                self._block_loop(timeout, sys._getframe(1))
        if self._state == _VALUE:
            value: R = self._result
            return value
        raise self._result

    def _block_loop(self, timeout: float | None, caller: FrameType) -> None:
        if not _called_from_notebook_cell(caller):
            import warnings

            warnings.warn(LOOP_WARNING, UserWarning, stacklevel=3)
        with interruptible_in_a_loop():
            self._wait(timeout)

    def _wait(self, timeout: float | None) -> None:
        if self._receiver is not None:
            self._receiver.read_for(self, timeout)
        elif self._done_event is not None:
            self._begin()
            wait_interruptibly(self._done_event, timeout)
        if self._state == _PENDING:
            raise TimeoutError(f"no result within {timeout} s")

    def result(self, timeout: float | None = None) -> R:
        """As get()."""
        return self.get(timeout)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """What get() would raise, or None."""
        try:
            self.get(timeout)
        except Exception as error:
            return error
        return None

    def as_asyncio(self) -> asyncio.Future[R]:
        """A new asyncio future of the running loop; cancelling it leaves this one alone."""
        loop = running_loop()
        if loop is None:
            raise RuntimeError("as_asyncio() needs a running event loop")
        return self._observe(loop)

    def _observe(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[R]:
        future: asyncio.Future[R] = loop.create_future()
        with _observers_lock:
            pending = self._state == _PENDING
            if pending:
                if self._observers is None:
                    self._observers = []
                self._observers.append((loop, future))
        if not pending:
            self._resolve(future)
        elif self._receiver is not None:
            self._receiver.add_waiter(self, loop)
        else:
            self._begin()
        return future

    def __await__(self) -> Generator[Any, None, R]:
        loop = running_loop()
        if loop is None:
            raise ValueError("a Future is awaited where there is no active event loop; use get()")
        return (yield from self._observe(loop).__await__())

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle 'Future' object")

    def __repr__(self) -> str:
        return f"<Future {('pending', 'done', 'failed')[self._state]}>"


# Guards the observers of all futures: held for a few instructions, and a lock for each would cost more than waiting.
_observers_lock = threading.Lock()
