"""Futures: observing, timeouts, laziness."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
import warnings
from typing import Any

import pytest
from conftest import EVENT_S
from monarch.actor import ActorError, Channel, Future
from sample_actors import Counter


def test_the_class_cannot_be_called() -> None:
    with pytest.raises(TypeError, match="Future objects are returned by Monarch operations"):
        Future()
    with pytest.raises(TypeError, match="unexpected keyword argument 'coro'"):
        Future(coro=1)  # type: ignore[call-arg]


def test_results_are_kept() -> None:
    future: Future[Any] = Future._from_function(lambda: [1])
    assert future.get() is future.get()
    assert future.result() is future.get(timeout=-1)
    assert future.exception() is None


def test_exceptions_are_kept_as_the_same_object() -> None:
    def fail() -> None:
        raise KeyError("x")

    future = Future._from_function(fail)
    errors = []
    for _ in range(2):
        with pytest.raises(KeyError) as caught:
            future.get()
        errors.append(caught.value)
    assert errors[0] is errors[1] is future.exception()


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf")])
def test_bad_timeouts_are_refused_before_anything_starts(timeout: float) -> None:
    started = []
    future = Future._from_function(lambda: started.append(1))
    with pytest.raises(ValueError, match="invalid timeout"):
        future.get(timeout=timeout)
    assert started == []


def test_a_limit_may_be_of_centuries_and_two_threads_may_wait() -> None:
    port, receiver = Channel.open()
    future = receiver.recv()
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(future.get(timeout=1e10))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert future._receiver is not None
    end = time.monotonic() + EVENT_S
    while not future._receiver._lock.locked() and time.monotonic() < end:
        os.sched_yield()
    port.send(1)
    for thread in threads:
        thread.join(EVENT_S)
    assert got == [1, 1]


def test_a_timeout_consumes_nothing() -> None:
    port, receiver = Channel.open()
    future = receiver.recv()
    with pytest.raises(TimeoutError):
        future.get(timeout=0)
    assert isinstance(future.exception(timeout=0.01), TimeoutError)
    port.send("late")
    assert future.get(timeout=EVENT_S) == "late"


def test_lazy_futures_do_nothing_until_observed() -> None:
    port, receiver = Channel.open()
    ignored = receiver.recv()
    port.send(1)
    assert receiver.recv().get(timeout=EVENT_S) == 1
    del ignored


def test_without_a_loop() -> None:
    future: Future[int] = Future._from_value(1)
    with pytest.raises(RuntimeError):
        future.as_asyncio()
    with pytest.raises(ValueError, match="no active event loop"):
        future.__await__().send(None)
    assert future.get() == 1


def test_get_in_a_loop_warns_unless_done(spawn_procs: Any) -> None:
    counter = spawn_procs().spawn("counter", Counter, 3)

    async def main() -> None:
        future = counter.get.call_one()
        with pytest.warns(UserWarning, match="active event loop.*as_asyncio"):
            assert future.get(timeout=EVENT_S) == 3
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert future.get() == 3

    asyncio.run(main())


def test_stop_iteration_is_wrapped() -> None:
    future: Future[Any] = Future._from_error(StopIteration(1))

    async def main() -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await future

    asyncio.run(main())


def test_observations_mix_and_share_one_exception() -> None:
    error = KeyError("x")
    future: Future[Any] = Future._from_error(error)

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(KeyError) as caught:
                await future
            assert caught.value is error

    asyncio.run(main())
    asyncio.run(main())
    with pytest.raises(KeyError) as caught:
        future.get()
    assert caught.value is error


def test_each_observation_is_a_fresh_asyncio_future_and_cancelling_one_leaves_the_others() -> None:
    port, receiver = Channel.open()
    future = receiver.recv()

    async def main() -> None:
        first, second = future.as_asyncio(), future.as_asyncio()
        assert first is not second
        first.cancel()
        port.send(1)
        assert await asyncio.wait_for(second, EVENT_S) == 1
        assert first.cancelled()

    asyncio.run(main())
    assert future.get() == 1


def test_a_base_exception_escapes_from_exception() -> None:
    future: Future[Any] = Future._from_error(SystemExit(3))
    with pytest.raises(SystemExit):
        future.exception()


def test_as_asyncio_of_a_result_that_is_there_is_done() -> None:
    async def main() -> None:
        assert Future._from_value(1).as_asyncio().done()

    asyncio.run(main())


def test_an_ignored_future_still_ran_the_call(spawn_procs: Any) -> None:
    counter = spawn_procs().spawn("counter", Counter, 3)
    counter.add.call_one()
    assert counter.get.call_one().get(timeout=EVENT_S) == 4


def test_there_is_no_done_and_no_callback() -> None:
    future: Future[int] = Future._from_value(1)
    assert not hasattr(future, "done")
    assert not hasattr(future, "add_done_callback")


def test_futures_do_not_travel() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Future._from_value(1))


def test_errors_travel() -> None:
    error = ActorError(
        ValueError("x"), "Actor call a.b failed.", "Traceback (most recent call last):\nValueError: x\n"
    )
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert isinstance(copy.exception, ValueError)
