"""Futures that programs make of coroutines (`Future._from_coro`), their states, and the tasks below them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import warnings
from typing import Any

import pytest
from conftest import EVENT_S
from monarch._compat import task_future
from monarch._compat.tasks import Handle, PythonTask, Shared, WouldBlockRuntime, is_tokio_thread
from monarch.actor import Future


async def value(v: Any) -> Any:
    return v


async def fail(error: BaseException) -> Any:
    raise error


def wait_for(event: threading.Event) -> Future[bool]:
    async def wait() -> bool:
        return await PythonTask.spawn_blocking(lambda: event.wait(EVENT_S))

    return Future._from_coro(wait())


def in_a_task(coroutine: Any) -> Any:
    return PythonTask.from_coroutine(coroutine).block_on()


def test_the_coroutine_begins_when_the_future_is_first_observed_and_runs_once() -> None:
    begun: list[int] = []

    async def work() -> int:
        begun.append(1)
        return 5

    future = Future._from_coro(work())
    assert begun == []
    assert isinstance(future._status, task_future._Unawaited)
    assert (future.get(), future.get(timeout=-1), future.result()) == (5, 5, 5)
    assert begun == [1]
    assert isinstance(future._status, task_future._Complete)


def test_an_exception_is_kept_as_the_same_object() -> None:
    error = KeyError("x")
    future = Future._from_coro(fail(error))
    for _ in range(2):
        with pytest.raises(KeyError) as caught:
            future.get()
        assert caught.value is error
    assert isinstance(future._status, task_future._Exception)
    assert future.exception() is error


def test_a_base_exception_is_not_kept() -> None:
    future = Future._from_coro(fail(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        future.exception()
    assert isinstance(future._status, task_future._Unawaited)
    with pytest.raises(ValueError, match="PythonTask already consumed"):
        future.get()


def test_a_timeout_neither_cancels_nor_consumes() -> None:
    event = threading.Event()
    future = wait_for(event)
    with pytest.raises(TimeoutError):
        future.get(timeout=0)
    assert isinstance(future._status, task_future._Handle)
    event.set()
    assert future.get() is True


def test_an_invalid_timeout_begins_nothing() -> None:
    future = Future._from_coro(value(1))
    for timeout in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="invalid timeout"):
            future.get(timeout=timeout)
    assert isinstance(future._status, task_future._Unawaited)


def test_two_loops_and_a_thread_observe_the_same_result() -> None:
    future = Future._from_coro(value([1]))

    async def main() -> Any:
        cancelled = future.as_asyncio()
        cancelled.cancel()
        return await future

    assert asyncio.run(main()) is asyncio.run(main()) is future.get()


def test_get_in_a_loop_warns_once_and_leaves_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    monkeypatch.setattr(
        task_future, "log_with_tracing", lambda *args, **kwargs: events.append(kwargs["extra"])
    )
    future = Future._from_coro(value(1))

    async def main() -> None:
        with pytest.warns(UserWarning, match="active event loop.*as_asyncio"):
            future.get()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            future.get()

    asyncio.run(main())
    assert events == [{"context": "asyncio"}] * 2


def test_a_future_cannot_be_observed_in_a_task() -> None:
    future = Future._from_coro(value(1))

    async def get() -> None:
        assert is_tokio_thread()
        future.get()

    async def wait() -> None:
        await future

    with pytest.raises(WouldBlockRuntime, match="from a synchronous or asyncio context"):
        in_a_task(get())
    with pytest.raises(RuntimeError, match="Tokio thread"):
        in_a_task(wait())
    assert future.get() == 1
    with pytest.raises(ValueError, match="already converted into a synchronous future"):
        in_a_task(wait())


def test_without_a_loop_nothing_is_consumed() -> None:
    future = Future._from_coro(value(1))
    with pytest.raises(ValueError, match="no active event loop"):
        future.__await__()
    with pytest.raises(RuntimeError):
        future.as_asyncio()
    assert future.get() == 1


def test_take_inner_gives_the_task_once_and_spends_the_future() -> None:
    future: Any = Future._from_coro(value(1))
    task = future._take_inner()
    assert isinstance(future._status, task_future._Taken)
    with pytest.raises(ValueError, match="already been awaited or resolved"):
        future._take_inner()
    with pytest.raises(ValueError, match="consumed"):
        future.get()
    assert task.block_on() == 1


def test_a_stop_iteration_is_wrapped() -> None:
    future: Any = Future._from_coro(value(1))
    future._status = task_future._Exception(StopIteration())

    async def main() -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await future

    asyncio.run(main())


# --- tasks ---


def test_a_task_awaits_tasks_and_shared_results() -> None:
    shared = PythonTask.from_coroutine(value(2)).spawn()

    async def work() -> tuple[Any, ...]:
        with pytest.raises(KeyError):
            await PythonTask.from_coroutine(fail(KeyError()))
        await PythonTask.sleep(0)
        return (await PythonTask.from_coroutine(value(1)), await shared, await shared, await shared.task())

    assert in_a_task(work()) == (1, 2, 2, 2)


def test_a_task_cannot_be_awaited_in_a_loop() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="asyncio loop"):
            await PythonTask.sleep(0)

    asyncio.run(main())


def test_the_first_of_several_tasks_wins() -> None:
    event = threading.Event()
    slow = PythonTask.spawn_blocking(lambda: event.wait(EVENT_S))
    fast = PythonTask.spawn_blocking(lambda: 7)
    assert PythonTask.select_one([slow.task(), fast.task()]).block_on() == (7, 1)
    assert slow.poll() is None
    with pytest.raises(TimeoutError):
        slow.task().with_timeout(0).block_on()
    event.set()
    assert slow.block_on() is True


def test_tasks_see_the_context_of_their_maker() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    variable.set(3)

    async def work() -> int:
        return variable.get()

    assert PythonTask.from_coroutine(work()).spawn().block_on() == 3
    assert PythonTask.spawn_blocking(variable.get).block_on() == 3


def test_a_handle_is_observed_any_number_of_times() -> None:
    handle: Handle[int] = PythonTask.from_coroutine(value(4)).spawn_handle()
    assert (handle.get(), handle.get(timeout=EVENT_S), handle.poll()) == (4, 4, 4)

    async def main() -> list[int]:
        return [await handle, await handle.as_asyncio()]

    assert asyncio.run(main()) == [4, 4]
    with pytest.raises(ValueError, match="invalid timeout"):
        handle.get(timeout=-1)
    with pytest.raises(RuntimeError, match="no running event loop"):
        handle.as_asyncio()
    assert Shared.from_value(5).poll() == 5
