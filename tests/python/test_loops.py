"""Calls are awaited in any event loop, asyncio's own or another, in any thread, and without a warning."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from conftest import EVENT_S
from monarch.actor import Actor, ActorError, Channel, Future, endpoint
from sample_actors import Counter

NewLoop = Callable[[], asyncio.AbstractEventLoop]
LOOPS: dict[str, NewLoop] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def run(new_loop: NewLoop, main: Coroutine[Any, Any, Any]) -> Any:
    loop = new_loop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


@pytest.fixture(params=LOOPS)
def new_loop(request: pytest.FixtureRequest) -> NewLoop:
    return LOOPS[request.param]


@pytest.fixture
def counters(spawn_procs: Any) -> Any:
    return spawn_procs({"gpus": 2}).spawn("counters", Counter)


@pytest.fixture
def no_warnings() -> Iterator[None]:
    gc.collect()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(warning.message) for warning in seen] == []


@pytest.mark.usefixtures("no_warnings")
def test_everything_that_can_be_awaited_is_awaited_without_a_warning(
    counters: Any, new_loop: NewLoop
) -> None:
    one = counters.slice(gpus=0)

    async def main() -> None:
        await counters.initialized
        assert (await counters.echo.call(1)).values() == [1, 1]
        assert await one.echo.call_one(2) == await counters.echo.choose(2) == 2
        assert await asyncio.gather(*(one.echo.call_one(i) for i in range(100))) == list(range(100))
        assert [await future for future in counters.echo.stream(3)] == [3, 3]
        with pytest.raises(ActorError, match="on purpose"):
            await one.fail.call_one("on purpose")
        port, receiver = Channel[int].open()
        received = receiver.recv().as_asyncio()
        port.send(4)
        assert await received == 4
        await counters.stop()

    run(new_loop, main())


def test_get_in_a_loop_works_and_warns(counters: Any, new_loop: NewLoop) -> None:
    async def main() -> list[int]:
        return counters.echo.call(5).get(timeout=EVENT_S).values()

    with pytest.warns(UserWarning, match="active event loop"):
        assert run(new_loop, main()) == [5, 5]


def test_a_call_outlives_who_gave_up_waiting_for_it(new_loop: NewLoop) -> None:
    port, receiver = Channel[int].open()
    future = receiver.recv()

    async def look() -> int:
        return await future

    async def give_up() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(look(), 0.01)

    async def send_and_look() -> int:
        asyncio.get_running_loop().call_soon(port.send, 6)
        return await future

    run(new_loop, give_up())
    assert run(new_loop, send_and_look()) == 6


@pytest.mark.usefixtures("no_warnings")
def test_loops_of_all_kinds_run_in_several_threads_at_once(counters: Any) -> None:
    port, receiver = Channel[str].open()
    shared: Future[str] = receiver.recv()
    started = threading.Barrier(5)
    seen: list[tuple[str, list[int]]] = []

    async def main(number: int) -> tuple[str, list[int]]:
        observer = shared.as_asyncio()
        started.wait(EVENT_S)
        answers = [await counters.echo.call((number, i)) for i in range(50)]
        assert all(answer.values() == [(number, i)] * 2 for i, answer in enumerate(answers))
        together = await asyncio.gather(*(counters.echo.choose(i) for i in range(50)))
        return await observer, together

    def in_a_thread(number: int, new_loop: NewLoop) -> None:
        seen.append(run(new_loop, main(number)))

    loops = enumerate([*LOOPS.values()] * 2)
    threads = [threading.Thread(target=in_a_thread, args=each) for each in loops]
    for thread in threads:
        thread.start()
    started.wait(EVENT_S)
    port.send("shared")
    for thread in threads:
        thread.join(EVENT_S)
    assert seen == [("shared", list(range(50)))] * 4


def install_uvloop() -> None:
    uvloop.install()


class UsesLoops(Actor):
    @endpoint
    async def await_other(self, other: Any) -> list[int]:
        return (await other.echo.call(8)).values()


class RunsLoops(Actor):
    @endpoint
    def run_loop(self, other: Any) -> list[int]:
        async def main() -> list[int]:
            return (await other.echo.call(9)).values()

        return run(uvloop.new_event_loop, main())


def test_actors_do_so_too(counters: Any, spawn_procs: Any) -> None:
    procs = spawn_procs(bootstrap=install_uvloop)
    assert procs.spawn("uses", UsesLoops).await_other.call_one(counters).get(timeout=EVENT_S) == [8, 8]
    assert procs.spawn("runs", RunsLoops).run_loop.call_one(counters).get(timeout=EVENT_S) == [9, 9]
