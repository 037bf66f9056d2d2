"""Actors with async endpoints, and clients in event loops."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import Any

import pytest
from conftest import EVENT_S, Failures
from monarch.actor import (
    Actor,
    ActorError,
    Channel,
    Port,
    SupervisionError,
    concurrent_endpoint,
    context,
    current_rank,
    endpoint,
    this_proc,
)
from sample_actors import Counter


class Waits(Actor):
    def __init__(self) -> None:
        self.events: list[str] = []
        self.gate = asyncio.Event()

    @endpoint
    async def echo(self, value: Any) -> Any:
        return value

    @endpoint
    async def pause(self, name: str) -> list[str]:
        self.events.append(f"{name} begins")
        await asyncio.sleep(0.001)
        self.events.append(f"{name} ends")
        return self.events

    @endpoint
    async def through_a_socket(self) -> bytes:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        theirs.send(b"hello\n")
        line = await reader.readline()
        writer.close()
        theirs.close()
        return line

    @endpoint
    async def in_a_thread(self) -> int:
        return await asyncio.to_thread(lambda: current_rank().rank)

    @endpoint
    async def call_other(self, other: Any) -> int:
        return await other.add.call_one(1)

    @endpoint
    async def fail(self) -> None:
        raise ValueError("in async")

    @endpoint
    async def base(self) -> None:
        raise KeyboardInterrupt

    @endpoint
    async def for_ever(self) -> None:
        await asyncio.Event().wait()

    @endpoint(explicit_response_port=True)
    async def many(self, port: Port[int], count: int) -> None:
        for i in range(count):
            port.send(i)

    @concurrent_endpoint
    async def open_gate(self) -> str:
        self.gate.set()
        return "open"

    @concurrent_endpoint
    async def at_gate(self, value: int) -> int:
        await self.gate.wait()
        return value

    @concurrent_endpoint
    async def fail_beside(self) -> None:
        raise ValueError("beside")


@pytest.fixture
def waits(spawn_procs: Any) -> Any:
    return spawn_procs({"gpus": 2}).spawn("waits", Waits)


def test_async_endpoints_answer(waits: Any) -> None:
    assert waits.echo.call(3).get(timeout=EVENT_S).values() == [3, 3]
    assert waits.through_a_socket.call().get(timeout=EVENT_S).values() == [b"hello\n"] * 2
    assert waits.in_a_thread.call().get(timeout=EVENT_S).values() == [0, 1]


def test_async_endpoints_do_not_interleave(waits: Any) -> None:
    one = waits.slice(gpus=0)
    futures = [one.pause.call_one(name) for name in "abc"]
    assert futures[-1].get(timeout=EVENT_S) == [f"{n} {w}" for n in "abc" for w in ("begins", "ends")]


def test_concurrent_endpoints_overlap(waits: Any) -> None:
    one = waits.slice(gpus=0)
    waiting = [one.at_gate.call_one(i) for i in range(5)]
    assert one.echo.call_one("ordinary").get(timeout=EVENT_S) == "ordinary"
    assert one.open_gate.call_one().get(timeout=EVENT_S) == "open"
    assert [future.get(timeout=EVENT_S) for future in waiting] == list(range(5))
    with pytest.raises(ActorError, match="Actor call waits.fail_beside failed"):
        one.fail_beside.call_one().get(timeout=EVENT_S)
    assert one.echo.call_one(1).get(timeout=EVENT_S) == 1


def test_async_actors_call_others(waits: Any, spawn_procs: Any) -> None:
    counter = spawn_procs().spawn("counter", Counter, 1)
    assert waits.slice(gpus=0).call_other.call_one(counter).get(timeout=EVENT_S) == 2


def test_failures_of_async_endpoints(waits: Any, failures: Failures) -> None:
    one = waits.slice(gpus=0)
    with pytest.raises(ActorError, match="in async"):
        one.fail.call_one().get(timeout=EVENT_S)
    with pytest.raises(SupervisionError, match="KeyboardInterrupt"):
        one.base.call_one().get(timeout=EVENT_S)
    failures.wait()
    assert waits.slice(gpus=1).echo.call_one(1).get(timeout=EVENT_S) == 1


def test_stop_ends_an_endpoint_that_waits(waits: Any, failures: Failures) -> None:
    pending = waits.for_ever.call()
    waits.stop().get(timeout=EVENT_S)
    with pytest.raises(SupervisionError, match="stopped"):
        pending.get(timeout=EVENT_S)
    assert failures.seen == []


def test_explicit_ports_answer_as_often_as_they_like(waits: Any) -> None:
    assert waits.slice(gpus=0).many.call_one(1).get(timeout=EVENT_S) == 0


class AsyncOwner(Actor):
    def __init__(self) -> None:
        self.told = asyncio.Event()

    @endpoint
    async def wait_for_failure(self) -> str:
        self.child = this_proc().spawn("child", Counter)
        self.child.fail.broadcast("child failed")
        await self.told.wait()
        return "told while waiting"

    async def __supervise__(self, failure: Any) -> bool:
        self.told.set()
        return True


def test_supervise_runs_while_an_endpoint_waits(spawn_procs: Any) -> None:
    owner = spawn_procs().spawn("owner", AsyncOwner)
    assert owner.wait_for_failure.call_one().get(timeout=EVENT_S) == "told while waiting"


# --- the client in event loops ---


def test_await_in_the_client(waits: Any) -> None:
    async def main() -> None:
        assert (await waits.echo.call(1)).values() == [1, 1]
        answers = await asyncio.gather(*(waits.slice(gpus=0).echo.call_one(i) for i in range(100)))
        assert answers == list(range(100))
        future = waits.echo.call(2)
        assert (await future).values() == (await future).values() == future.get().values() == [2, 2]
        with pytest.raises(ActorError):
            await waits.fail.call()
        for stream in waits.echo.stream(7):
            assert await stream == 7

    asyncio.run(main())
    asyncio.run(main())


def test_as_asyncio_can_be_cancelled(waits: Any) -> None:
    async def main() -> None:
        future = waits.slice(gpus=0).at_gate.call_one(5)
        first, second = future.as_asyncio(), future.as_asyncio()
        first.cancel()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(future, 0.01)
        waits.open_gate.broadcast()
        assert await second == 5
        assert await future == 5

    asyncio.run(main())


def test_one_future_in_several_loops_and_threads(waits: Any) -> None:
    future = waits.slice(gpus=0).at_gate.call_one(6)
    started = threading.Barrier(5)
    results: list[Any] = []

    async def main() -> None:
        observer = future.as_asyncio()
        started.wait(EVENT_S)
        results.append(await observer)

    def in_loop() -> None:
        asyncio.run(main())

    def plain() -> None:
        started.wait(EVENT_S)
        results.append(future.get())

    threads = [threading.Thread(target=target) for target in (in_loop, in_loop, plain, plain)]
    for thread in threads:
        thread.start()
    started.wait(EVENT_S)
    waits.open_gate.broadcast()
    for thread in threads:
        thread.join(EVENT_S)
    assert results == [6] * 4


def test_async_with_stops_the_mesh(failures: Failures) -> None:
    from monarch.actor import this_host

    async def main() -> list[int]:
        async with this_host().spawn_procs({"gpus": 2}) as procs:
            counters = procs.spawn("counters", Counter)
            await counters.initialized
            pids = [pid for pid, *_ in (await counters.where.call()).values()]
        with pytest.raises(RuntimeError, match="already been stopped"):
            async with procs:
                pass
        return pids

    for pid in asyncio.run(main()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_channels() -> None:
    port, receiver = Channel.open()
    port.send(1)
    port.send([2])
    assert receiver.recv().get(timeout=EVENT_S) == 1
    assert receiver.recv().get(timeout=EVENT_S) == [2]
    with pytest.raises(TimeoutError):
        receiver.recv().get(timeout=0.01)
    port.exception(KeyError("k"))
    with pytest.raises(KeyError):
        receiver.recv().get(timeout=EVENT_S)
    once, receiver = Channel.open(once=True)
    once.send(1)
    with pytest.raises(RuntimeError, match="OncePortRef already used"):
        once.send(2)
    assert receiver.recv().get(timeout=EVENT_S) == 1
    with pytest.raises(ValueError, match="OncePort is already used"):
        receiver.recv()


class Sender(Actor):
    @endpoint
    def send(self, port: Port[Any], count: int) -> None:
        for i in range(count):
            port.send((current_rank().rank, i))


def test_ports_travel(spawn_procs: Any) -> None:
    port, receiver = Channel.open()
    spawn_procs({"gpus": 2}).spawn("senders", Sender).send.broadcast(port, 50)
    got = [receiver.recv().get(timeout=EVENT_S) for _ in range(100)]
    for rank in (0, 1):
        assert [i for r, i in got if r == rank] == list(range(50))


def test_ports_whose_receiver_is_gone_are_harmless(spawn_procs: Any, failures: Failures) -> None:
    port, receiver = Channel.open()
    del receiver
    sender = spawn_procs().spawn("sender", Sender)
    sender.send.call_one(port, 3).get(timeout=EVENT_S)
    assert failures.seen == []


def test_context_of_the_client() -> None:
    instance = context().actor_instance
    assert str(instance) == "<root>"
    assert len(current_rank()) == 0
    assert current_rank().rank == 0
    assert context().actor_instance is instance


class Overlapping(Actor):
    @concurrent_endpoint(explicit_response_port=True)
    async def answer(self, port: Port[int], value: int, *, twice: bool = False) -> None:
        port.send(value * (2 if twice else 1))


def test_concurrent_endpoint_with_a_port_of_its_own(spawn_procs: Any) -> None:
    mesh = spawn_procs({"gpus": 2}).spawn("overlapping", Overlapping)
    assert mesh.answer.call(4, twice=True).get(timeout=EVENT_S).values() == [8, 8]
    with pytest.raises(TypeError):
        mesh.answer.call()


def test_a_future_outlives_the_last_loop_that_looked_at_it(spawn_procs: Any) -> None:
    port: Port[int]
    port, receiver = Channel.open()
    future = receiver.recv()
    looking = threading.Event()
    seen: list[int] = []

    async def look() -> int:
        return await future

    async def look_long() -> int:
        task = asyncio.ensure_future(look())
        await asyncio.sleep(0)
        looking.set()
        return await asyncio.wait_for(task, EVENT_S)

    async def look_shortly() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(look(), 0.01)

    thread = threading.Thread(target=lambda: seen.append(asyncio.run(look_long())))
    thread.start()
    assert looking.wait(EVENT_S)
    asyncio.run(look_shortly())
    port.send(7)
    thread.join()
    assert seen == [7]
