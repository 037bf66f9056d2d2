"""Future.cancel(): the caller is free at once; the callee drops the call, or can see that nobody waits."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from gate import Gate, pass_gate
from monarch._actor.process import process
from monarch.actor import (
    Actor,
    CallCancelledError,
    Channel,
    Port,
    concurrent_endpoint,
    context,
    endpoint,
    this_host,
)

WAIT_S = 60


class Worker(Actor):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    @endpoint
    def hold(self, path: str) -> None:
        pass_gate(path)

    @endpoint
    def echo(self, value: Any) -> Any:
        self.seen.append(value)
        return value

    @endpoint
    def until_cancelled(self, started: Port[None]) -> bytes:
        """Ends when it is cancelled; the answer comes late."""
        assert not context().cancelled
        started.send(None)
        mine = context()
        seen = threading.Event()
        threading.Thread(target=lambda: (watch(mine), seen.set()), daemon=True).start()
        self.seen.append(("cancelled", watch(mine), seen.wait(WAIT_S)))
        return bytes(100_000)

    @endpoint
    def keep_or_look(self, started: Port[None] | None) -> None:
        """Keeps its context at the first call; at the second one looks at that once it is cancelled itself."""
        if started is None:
            self.kept = context()
            return
        started.send(None)
        self.seen.append((watch(context()), self.kept.cancelled))

    @endpoint
    def take_seen(self) -> list[Any]:
        seen, self.seen = self.seen, []
        return [*seen, context().cancelled]


def watch(mine: Any) -> bool:
    """As an endpoint does that looks between two steps of its work."""
    end = time.monotonic() + WAIT_S
    while not mine.cancelled and time.monotonic() < end:
        os.sched_yield()
    return bool(mine.cancelled)


class AsyncWorker(Actor):
    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.running = 0

    @endpoint
    async def until_cancelled(self, started: Port[None]) -> None:
        started.send(None)
        await asyncio.wait_for(context().wait_cancelled(), WAIT_S)
        self.seen.append(("cancelled", context().cancelled))

    @concurrent_endpoint
    async def side_by_side(self, name: str) -> str:
        self.running += 1
        await asyncio.wait_for(context().wait_cancelled(), WAIT_S)
        self.seen.append((name, context().cancelled))
        return name

    @endpoint
    async def echo(self, value: Any) -> Any:
        self.seen.append(value)
        return value

    @concurrent_endpoint
    async def how_many_run(self) -> int:
        return self.running

    @endpoint
    async def take_seen(self) -> list[Any]:
        seen, self.seen = self.seen, []
        return [*seen, context().cancelled]


class Bystander(Actor):
    @endpoint
    def passed(self) -> None:
        """Answers once all is there that was sent to this process before."""


class SlowStart(Worker):
    def __init__(self, path: str) -> None:
        super().__init__()
        pass_gate(path)


@pytest.fixture(scope="module")
def procs() -> Iterator[Any]:
    procs = this_host().spawn_procs({"gpus": 1})
    procs.initialized.get(timeout=WAIT_S)
    yield procs
    procs.stop().get(timeout=WAIT_S)


@pytest.fixture(scope="module")
def bystander(procs: Any) -> Any:
    return procs.spawn("bystander", Bystander)


@pytest.fixture
def worker(procs: Any) -> Any:
    return procs.spawn("worker", Worker)


@pytest.fixture
def held(worker: Any, gate: Gate) -> Iterator[Any]:
    """The future of a call that is under way."""
    yield worker.hold.call_one(gate.path)
    gate.let_pass()
    assert worker.echo.call_one(1).get(timeout=WAIT_S) == 1  # The actor lives on.


def test_the_context_of_a_call_tells_nothing_of_a_later_one(worker: Any) -> None:
    worker.keep_or_look.call_one(None).get(timeout=WAIT_S)
    port, started = Channel.open()
    future = worker.keep_or_look.call_one(port)
    started.recv().get(timeout=WAIT_S)
    assert future.cancel()
    assert worker.take_seen.call_one().get(timeout=WAIT_S) == [(True, False), False]


# --- the caller ---


def test_cancel_wakes_a_thread_that_waits(held: Any) -> None:
    future = held
    errors: list[Any] = []
    thread = threading.Thread(target=lambda: errors.append(future.exception()))
    thread.start()
    end = time.monotonic() + WAIT_S
    while not future._receiver._lock.locked() and time.monotonic() < end:  # It reads.
        os.sched_yield()
    assert future.cancel()
    thread.join(timeout=WAIT_S)
    assert [type(error) for error in errors] == [CallCancelledError]


def test_cancel_of_initialized_leaves_the_creation_alone(spawn_procs: Any) -> None:
    worker = spawn_procs({"gpus": 1}).spawn("worker", Worker)
    assert worker.initialized.cancel()
    assert worker.echo.call_one(1).get(timeout=WAIT_S) == 1
    assert worker.initialized.get(timeout=WAIT_S) is None


def test_cancel_wakes_a_coroutine_that_waits(held: Any) -> None:
    future = held

    async def main() -> None:
        waiting = future.as_asyncio()
        future.cancel()
        with pytest.raises(CallCancelledError):
            await asyncio.wait_for(waiting, WAIT_S)

    asyncio.run(main())


def test_cancel_may_be_repeated(held: Any) -> None:
    future = held
    assert future.cancel()
    assert future.cancel()
    with pytest.raises(CallCancelledError):
        future.get(timeout=WAIT_S)


def test_cancel_of_a_done_future_changes_nothing(worker: Any) -> None:
    other = worker.echo.call_one(2)
    assert other.get(timeout=WAIT_S) == 2
    assert not other.cancel()
    assert other.get() == 2


# --- calls that are queued ---


def test_a_queued_call_that_is_cancelled_never_runs(worker: Any, gate: Gate, bystander: Any) -> None:
    first = worker.hold.call_one(gate.path)
    queued = [worker.echo.call_one(number) for number in range(200)]
    for future in queued[::2]:
        future.cancel()
    bystander.passed.call_one().get(timeout=WAIT_S)
    gate.let_pass()
    first.get(timeout=WAIT_S)
    assert [future.get(timeout=WAIT_S) for future in queued[1::2]] == list(range(1, 200, 2))
    assert worker.take_seen.call_one().get(timeout=WAIT_S) == [*range(1, 200, 2), False]


def test_a_cancelled_call_does_not_run_that_an_async_actor_has_taken_ahead(
    procs: Any, bystander: Any
) -> None:
    worker = procs.spawn("worker", AsyncWorker)
    started, begun = Channel[None].open()
    first = worker.until_cancelled.call_one(started)
    begun.recv().get(timeout=WAIT_S)
    queued = [worker.echo.call_one(number) for number in range(200)]
    for future in queued[::2]:
        future.cancel()
    bystander.passed.call_one().get(timeout=WAIT_S)
    first.cancel()
    assert [future.get(timeout=WAIT_S) for future in queued[1::2]] == list(range(1, 200, 2))
    seen = worker.take_seen.call_one().get(timeout=WAIT_S)
    assert seen == [("cancelled", True), *range(1, 200, 2), False]


def test_a_call_that_is_cancelled_while_its_actor_is_made_never_runs(
    procs: Any, gate: Gate, bystander: Any
) -> None:
    worker = procs.spawn("worker", SlowStart, gate.path)
    calls = [worker.echo.call_one(number) for number in range(4)]
    for future in calls[1:3]:
        future.cancel()
    bystander.passed.call_one().get(timeout=WAIT_S)
    gate.let_pass()
    assert worker.take_seen.call_one().get(timeout=WAIT_S) == [0, 3, False]


def test_the_arguments_of_a_dropped_call_are_given_back(worker: Any, gate: Gate, bystander: Any) -> None:
    bystander.passed.call_one().get(timeout=WAIT_S)
    before = process().runtime.stats()["segment_bytes"]
    first = worker.hold.call_one(gate.path)
    worker.echo.call_one(bytes(1_000_000)).cancel()
    bystander.passed.call_one().get(
        timeout=WAIT_S
    )  # It has been dropped, and what is given back is under way.
    end = time.monotonic() + WAIT_S
    while process().runtime.stats()["segment_bytes"] > before and time.monotonic() < end:
        bystander.passed.call_one().get(timeout=WAIT_S)
    assert process().runtime.stats()["segment_bytes"] <= before
    gate.let_pass()
    first.get(timeout=WAIT_S)


# --- calls that run ---


def test_a_running_endpoint_sees_that_its_call_is_cancelled(worker: Any) -> None:
    started, begun = Channel[None].open()
    future = worker.until_cancelled.call_one(started)
    begun.recv().get(timeout=WAIT_S)
    future.cancel()
    # Its thread sees it, too; the next call is not cancelled; and the late answer goes nowhere.
    assert worker.take_seen.call_one().get(timeout=WAIT_S) == [("cancelled", True, True), False]
    with pytest.raises(CallCancelledError):
        future.get(timeout=WAIT_S)


def test_all_members_of_a_mesh_see_that_a_call_is_cancelled() -> None:
    procs = this_host().spawn_procs({"gpus": 2})
    workers = procs.spawn("worker", Worker)
    started, begun = Channel[None].open()
    future = workers.until_cancelled.call(started)
    for _ in range(2):
        begun.recv().get(timeout=WAIT_S)
    future.cancel()
    both = workers.take_seen.call().get(timeout=WAIT_S)
    assert list(both.values()) == [[("cancelled", True, True), False]] * 2
    procs.stop().get(timeout=WAIT_S)


def test_each_of_several_calls_that_run_at_once_is_cancelled_by_itself(procs: Any) -> None:
    worker = procs.spawn("worker", AsyncWorker)
    futures = {name: worker.side_by_side.call_one(name) for name in "abc"}
    while worker.how_many_run.call_one().get(timeout=WAIT_S) < 3:
        pass
    seen: list[Any] = []
    for name in "bac":
        futures[name].cancel()
        while (name, True) not in seen:
            seen += worker.take_seen.call_one().get(timeout=WAIT_S)
    assert [each for each in seen if each] == [("b", True), ("a", True), ("c", True)]


def test_nothing_is_cancelled_outside_of_endpoints() -> None:
    assert context().cancelled is False

    async def main() -> None:
        with pytest.raises(RuntimeError, match="async endpoints"):
            await context().wait_cancelled()

    asyncio.run(main())
