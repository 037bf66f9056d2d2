"""Time limits of calls: `call(..., timeout=seconds)` and `with_timeout(seconds).call(...)`."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import assert_pending
from gate import Gate, pass_gate
from monarch.actor import (
    Accumulator,
    Actor,
    ActorError,
    CallTimeoutError,
    Channel,
    Port,
    as_endpoint,
    context,
    endpoint,
    send,
    this_host,
)

WAIT_S = 60
SHORT_S = 0.05
AMPLE_S = 5.0  # for those who answer


class Waiter(Actor):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    @endpoint
    def hold(self, path: str, ranks: tuple[int, ...] = (0, 1, 2, 3)) -> int:
        rank = context().actor_instance.rank.rank
        if rank in ranks:
            pass_gate(path)
        if rank == 3:
            raise ValueError("rank 3")
        return rank

    @endpoint
    def echo(self, value: Any) -> Any:
        self.seen.append(value)
        return value

    @endpoint
    def until_cancelled(self) -> None:
        self.seen.append("begun")
        end = time.monotonic() + WAIT_S
        while not context().cancelled and time.monotonic() < end:
            os.sched_yield()
        self.seen.append(context().cancelled)

    @endpoint
    def take_seen(self) -> list[Any]:
        seen, self.seen = self.seen, []
        return seen

    @endpoint
    def own(self, timeout: float) -> tuple[str, float]:
        return "own", timeout

    @endpoint
    def any_keyword(self, **kwargs: Any) -> dict[str, Any]:
        return kwargs

    @endpoint
    def keyword_only(self, *values: int, timeout: float = 0.0) -> Any:
        return values, timeout

    @endpoint
    def values(self, *values: int) -> tuple[int, ...]:
        return values

    @endpoint(explicit_response_port=True)
    def by_port(self, port: Port[str], answer: bool) -> None:
        if answer:
            port.send("answer")

    def plain(self, value: int) -> int:
        return value

    def plain_with_timeout(self, timeout: int) -> int:
        return timeout


class AsyncWaiter(Actor):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    @endpoint
    async def until_cancelled(self) -> None:
        self.seen.append("begun")
        await asyncio.wait_for(context().wait_cancelled(), WAIT_S)
        self.seen.append(context().cancelled)

    @endpoint
    async def take_seen(self) -> list[Any]:
        seen, self.seen = self.seen, []
        return seen


@pytest.fixture(scope="module")
def procs() -> Iterator[Any]:
    procs = this_host().spawn_procs({"gpus": 4})
    procs.initialized.get(timeout=WAIT_S)
    yield procs
    procs.stop().get(timeout=WAIT_S)


@pytest.fixture
def mesh(procs: Any) -> Any:
    mesh = procs.spawn("waiters", Waiter)
    mesh.echo.call(0).get(timeout=WAIT_S)
    mesh.take_seen.call().get(timeout=WAIT_S)
    return mesh


@pytest.fixture
def one(mesh: Any) -> Any:
    return mesh.slice(gpus=0)


@pytest.fixture
def held(one: Any, gate: Gate) -> Iterator[Any]:
    """A mesh whose only actor is busy."""
    future = one.hold.call_one(gate.path)
    yield one
    gate.let_pass()
    assert future.get(timeout=WAIT_S) == 0


# --- the error ---


def test_the_error_names_endpoint_actor_limit_and_who_did_not_answer(mesh: Any, gate: Gate) -> None:
    future = mesh.hold.call(gate.path, (1, 2), timeout=AMPLE_S)
    with pytest.raises(TimeoutError) as raised:
        future.get(timeout=WAIT_S)
    error: Any = raised.value
    assert type(error) is CallTimeoutError
    assert (error.endpoint, error.timeout, error.ranks) == ("waiters.hold()", AMPLE_S, (1, 2))
    text = "Endpoint call waiters.hold() failed, no answer within 5 s from ranks 1, 2 of waiters ("
    assert str(error).startswith(text)
    assert str(error).endswith(".Waiter)")
    # What the others answered is not lost.
    assert dict(error.values) == {0: 0}
    assert [*error.failures] == [3]
    assert isinstance(error.failures[3], ActorError)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.ranks, copy.timeout) == (str(error), (1, 2), AMPLE_S)
    gate.let_pass(2)


def test_ranks_are_those_of_the_slice_that_was_called(mesh: Any, gate: Gate) -> None:
    with pytest.raises(CallTimeoutError) as raised:
        mesh.slice(gpus=slice(2, 4)).hold.call(gate.path, (2,), timeout=AMPLE_S).get(timeout=WAIT_S)
    assert raised.value.ranks == (0,)
    gate.let_pass()


def test_only_some_of_many_ranks_are_shown() -> None:
    error = CallTimeoutError("mesh.method()", 1.0, tuple(range(100)), "mesh (Class)")
    assert "from ranks 0, 1, 2" in str(error)
    assert "15 and 84 more of mesh (Class)" in str(error)


def test_each_way_to_call_may_have_a_limit(held: Any) -> None:
    futures = [
        held.echo.call(1, timeout=SHORT_S),
        held.echo.call_one(1, timeout=SHORT_S),
        held.echo.choose(1, timeout=SHORT_S),
        *held.echo.stream(1, timeout=SHORT_S),
        held.echo.with_timeout(SHORT_S).call_one(1),
        held.by_port.call_one(True, timeout=SHORT_S),
        as_endpoint(held.plain).call_one(1, timeout=SHORT_S),
    ]
    for future in futures:
        error = future.exception(timeout=WAIT_S)
        assert isinstance(error, CallTimeoutError)
        assert error.ranks == (0,)
    late = Accumulator(held.echo.with_timeout(SHORT_S), 0, lambda a, b: a + b).accumulate(1)
    assert isinstance(late.exception(timeout=WAIT_S), CallTimeoutError)


def started_within(limit: Callable[[float], Any], mesh: Any) -> tuple[Any, list[Any]]:
    """A call with a limit that is short, but long enough for it to begin; and what the members have seen."""
    for seconds in (0.1, 1.0, 10.0):
        future = limit(seconds)
        seen = list(mesh.take_seen.call().get(timeout=WAIT_S).values())
        if any(seen):
            return future, seen
    pytest.fail("no call has begun in time")


def test_the_one_that_was_chosen_is_named(mesh: Any) -> None:
    future, seen = started_within(lambda limit: mesh.until_cancelled.choose(timeout=limit), mesh)
    with pytest.raises(CallTimeoutError) as raised:
        future.get(timeout=WAIT_S)
    assert raised.value.ranks == (seen.index(["begun", True]),)


def test_a_stream_has_what_came_in_time_and_an_error_for_each_other(mesh: Any, gate: Gate) -> None:
    ranks = set()
    values = []
    for future in mesh.hold.stream(gate.path, (0, 2), timeout=AMPLE_S):
        try:
            values.append(future.get(timeout=WAIT_S))
        except CallTimeoutError as error:
            ranks.update(error.ranks)
        except ActorError:
            values.append(3)
    assert (sorted(values), ranks) == ([1, 3], {0, 2})
    gate.let_pass(2)


# --- when ---


def test_an_answer_in_time_is_the_result(one: Any) -> None:
    assert one.echo.call_one(1, timeout=WAIT_S).get(timeout=WAIT_S) == 1
    assert one.by_port.call_one(True, timeout=WAIT_S).get(timeout=WAIT_S) == "answer"
    with pytest.raises(ActorError):
        one.hold.call_one(None, timeout=WAIT_S).get(timeout=WAIT_S)


def test_without_a_limit_a_call_is_awaited_for_as_long_as_it_takes(held: Any) -> None:
    future = held.echo.call_one(1, timeout=None)
    again = held.echo.with_timeout(SHORT_S).with_timeout(None).call_one(2)
    held.echo.call_one(3, timeout=2 * SHORT_S).exception(timeout=WAIT_S)
    assert_pending(future)
    assert_pending(again)


def test_a_coroutine_and_a_thread_that_wait_have_the_error(held: Any) -> None:
    future = held.echo.call_one(1, timeout=0.3)
    errors: list[Any] = []
    thread = threading.Thread(target=lambda: errors.append(future.exception()))
    thread.start()

    async def main() -> None:
        with pytest.raises(CallTimeoutError):
            await asyncio.wait_for(future.as_asyncio(), WAIT_S)
        with pytest.raises(CallTimeoutError):
            await asyncio.wait_for(held.echo.call_one(1, timeout=SHORT_S).as_asyncio(), WAIT_S)

    asyncio.run(main())
    thread.join(timeout=WAIT_S)
    assert [type(error) for error in errors] == [CallTimeoutError]


def test_the_limit_passes_although_nobody_waits(one: Any) -> None:
    future, seen = started_within(lambda limit: one.until_cancelled.call_one(timeout=limit), one)
    assert seen == [["begun", True]]
    assert isinstance(future.exception(timeout=WAIT_S), CallTimeoutError)


def test_a_shorter_limit_that_is_set_later_passes_first(held: Any) -> None:
    long = held.echo.call_one(1, timeout=WAIT_S)
    assert isinstance(held.echo.call_one(2, timeout=SHORT_S).exception(timeout=WAIT_S), CallTimeoutError)
    assert_pending(long)
    long.cancel()


def test_limits_pass_one_after_the_other(held: Any) -> None:
    futures = [held.echo.call_one(step, timeout=SHORT_S * step) for step in (1, 2, 3, 2, 4)]
    for future in futures:
        assert isinstance(future.exception(timeout=WAIT_S), CallTimeoutError)


def test_the_time_counts_in_which_the_actor_is_made(procs: Any, gate: Gate) -> None:
    slow = procs.slice(gpus=0).spawn("slow", SlowStart, gate.path)
    with pytest.raises(CallTimeoutError):
        slow.echo.call_one(1, timeout=SHORT_S).get(timeout=WAIT_S)
    gate.let_pass()
    assert slow.take_seen.call_one().get(timeout=WAIT_S) == []


class SlowStart(Waiter):
    def __init__(self, path: str) -> None:
        super().__init__()
        pass_gate(path)


# --- the callee ---


def test_a_queued_call_whose_limit_has_passed_never_runs(one: Any, gate: Gate) -> None:
    first = one.hold.call_one(gate.path)
    futures = [one.echo.call_one(number, timeout=SHORT_S if number % 2 else None) for number in range(100)]
    for future in futures[1::2]:
        assert isinstance(future.exception(timeout=WAIT_S), CallTimeoutError)
    gate.let_pass()
    first.get(timeout=WAIT_S)
    assert one.take_seen.call_one().get(timeout=WAIT_S) == list(range(0, 100, 2))


def test_an_async_endpoint_that_waits_is_told(procs: Any) -> None:
    waiter = procs.slice(gpus=1).spawn("waiter", AsyncWaiter)
    future, seen = started_within(lambda limit: waiter.until_cancelled.call_one(timeout=limit), waiter)
    assert seen == [["begun", True]]
    assert isinstance(future.exception(timeout=WAIT_S), CallTimeoutError)


def test_a_late_answer_is_dropped_in_silence(one: Any, capfd: Any) -> None:
    future, _ = started_within(lambda limit: one.until_cancelled.call_one(timeout=limit), one)
    assert isinstance(future.exception(timeout=WAIT_S), CallTimeoutError)
    assert one.echo.call_one(1).get(timeout=WAIT_S) == 1  # Behind the answer.
    assert isinstance(future.exception(timeout=WAIT_S), CallTimeoutError)
    assert capfd.readouterr().err == ""


# --- whose `timeout` it is ---


def test_a_keyword_timeout_of_the_endpoint_is_the_endpoint_s(one: Any) -> None:
    assert one.own.call_one(timeout=SHORT_S).get(timeout=WAIT_S) == ("own", SHORT_S)
    assert one.any_keyword.call_one(timeout=SHORT_S).get(timeout=WAIT_S) == {"timeout": SHORT_S}
    assert one.keyword_only.call_one(1, timeout=SHORT_S).get(timeout=WAIT_S) == ((1,), SHORT_S)
    assert as_endpoint(one.plain_with_timeout).call_one(timeout=5).get(timeout=WAIT_S) == 5
    assert one.values.call_one(1, 2, timeout=WAIT_S).get(timeout=WAIT_S) == (1, 2)


def test_with_timeout_limits_those_too(held: Any) -> None:
    for future in (
        held.own.with_timeout(SHORT_S).call_one(timeout=1.0),
        held.any_keyword.with_timeout(SHORT_S).call_one(timeout=1.0),
        as_endpoint(held.plain_with_timeout).with_timeout(SHORT_S).call_one(timeout=1),
    ):
        error = future.exception(timeout=WAIT_S)
        assert isinstance(error, CallTimeoutError)
        assert error.timeout == SHORT_S


def test_with_timeout_leaves_the_endpoint_itself_alone(one: Any) -> None:
    limited = one.echo.with_timeout(SHORT_S)
    assert limited is not one.echo
    assert one.own.call_one(1.0).get(timeout=WAIT_S) == ("own", 1.0)
    one.echo.broadcast(1)  # Which a limited one refuses.
    with pytest.raises(ValueError, match="nothing here waits"):
        limited.broadcast(1)
    port, _ = Channel[Any].open()
    with pytest.raises(ValueError, match="nothing here waits"):
        send(limited, (1,), {}, port)
    with pytest.raises(TypeError, match="timeout"):
        one.echo.broadcast(1, timeout=1.0)


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf")])
def test_a_limit_is_a_time(one: Any, timeout: float) -> None:
    with pytest.raises(ValueError, match="invalid timeout"):
        one.echo.call_one(1, timeout=timeout)
    with pytest.raises(ValueError, match="invalid timeout"):
        one.echo.with_timeout(timeout)


def test_a_limit_of_nothing_is_over_at_once(one: Any) -> None:
    assert isinstance(one.echo.call_one(1, timeout=0).exception(timeout=WAIT_S), CallTimeoutError)
    assert one.take_seen.call_one().get(timeout=WAIT_S) == []
