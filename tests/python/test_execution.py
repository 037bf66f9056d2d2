"""Where and in which order an actor's code runs: threads and loops, one message at a time, the order of messages, and
the points of slices."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from conftest import EVENT_S, Failures, assert_pending
from monarch.actor import (
    Actor,
    Channel,
    Port,
    concurrent_endpoint,
    context,
    current_rank,
    endpoint,
    this_host,
    this_proc,
)
from sample_actors import Counter

Spawn = Callable[..., Any]


class Threads(Actor):
    """Notes on which thread each of its methods runs, with a thread-local value of `__init__`."""

    def __init__(self, cleaned: Port[Any]) -> None:
        self.local = threading.local()
        self.local.value = "set in __init__"
        self.cleaned = cleaned
        self.supervised: list[Any] = []

    def here(self) -> tuple[int, int, Any, bool]:
        me = threading.current_thread()
        return os.getpid(), me.ident or 0, getattr(self.local, "value", None), me.daemon

    @endpoint
    def where(self) -> tuple[int, int, Any, bool]:
        return self.here()

    @endpoint
    def spawn_failing(self) -> Any:
        return this_proc().spawn("failing", Counter)

    @endpoint
    def seen(self) -> list[Any]:
        return self.supervised

    def __supervise__(self, failure: Any) -> bool:
        self.supervised.append(self.here())
        return True

    def __cleanup__(self, exc: Exception | None) -> None:
        self.cleaned.send(self.here())


class AsyncThreads(Threads):
    @endpoint
    async def where(self) -> tuple[int, int, Any, bool]:  # type: ignore[override]
        return (*self.here()[:2], id(asyncio.get_running_loop()), True)

    @endpoint
    async def spawn_failing(self) -> Any:
        return this_proc().spawn("failing", Counter)

    @endpoint
    async def seen(self) -> list[Any]:
        return self.supervised

    async def __cleanup__(self, exc: Exception | None) -> None:
        self.cleaned.send(self.here())


@pytest.mark.parametrize("cls", [Threads, AsyncThreads])
def test_init_endpoints_supervise_and_cleanup_run_on_one_daemon_thread(spawn_procs: Spawn, cls: Any) -> None:
    port, cleaned = Channel[Any].open()
    mesh = spawn_procs().spawn("threads", cls, port)
    where = mesh.where.call_one().get(timeout=EVENT_S)
    assert where[3]
    failing = mesh.spawn_failing.call_one().get(timeout=EVENT_S)
    failing.raise_base.call_one().exception(timeout=EVENT_S)
    mesh.stop().get(timeout=EVENT_S)
    assert cleaned.recv().get(timeout=EVENT_S) == (*where[:2], "set in __init__", True)


@pytest.mark.parametrize("cls", [Threads, AsyncThreads])
def test_supervise_sees_what_init_set_for_its_thread(spawn_procs: Spawn, cls: Any) -> None:
    mesh = spawn_procs().spawn("threads", cls, Channel[Any].open()[0])
    where = mesh.where.call_one().get(timeout=EVENT_S)
    failing = mesh.spawn_failing.call_one().get(timeout=EVENT_S)
    failing.raise_base.call_one().exception(timeout=EVENT_S)
    # The failure comes behind the answer, and so perhaps behind the next call.
    while not (seen := mesh.seen.call_one().get(timeout=EVENT_S)):
        pass
    assert seen == [(*where[:2], "set in __init__", True)]


def test_each_actor_of_a_process_has_a_thread_and_a_loop_of_its_own(spawn_procs: Spawn) -> None:
    procs = spawn_procs()
    port, _ = Channel[Any].open()
    first, second = (
        procs.spawn("threads", AsyncThreads, port).where.call_one().get(timeout=EVENT_S) for _ in range(2)
    )
    assert first[0] == second[0]
    assert first[1] != second[1] and first[2] != second[2]


class OneByOne(Actor):
    def __init__(self) -> None:
        self.events: list[str] = []
        self.go_on = asyncio.Event()

    async def note(self, name: str) -> None:
        for i in range(3):
            self.events.append(f"{name}{i}")
            await asyncio.sleep(0)

    @endpoint
    async def ordinary(self, name: str) -> list[str]:
        await self.note(name)
        return self.events

    @endpoint
    async def with_a_task(self) -> None:
        self.task = asyncio.create_task(self.go_on.wait())

    @endpoint
    async def let_go_on(self) -> bool:
        self.go_on.set()
        return await asyncio.wait_for(self.task, EVENT_S)

    @concurrent_endpoint
    async def beside(self) -> bool:
        return await self.go_on.wait()

    @endpoint(explicit_response_port=True)
    async def by_port(self, port: Port[str]) -> None:
        async def later() -> None:
            await self.go_on.wait()
            port.send("later")

        self.by_port_task = asyncio.create_task(later())


def test_an_async_endpoint_runs_to_its_end_before_the_next_message(spawn_procs: Spawn) -> None:
    mesh = spawn_procs().spawn("one", OneByOne)
    calls = [mesh.ordinary.call_one(name) for name in "ab"]
    assert calls[-1].get(timeout=EVENT_S) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_tasks_that_an_endpoint_made_go_on_between_messages(spawn_procs: Spawn) -> None:
    mesh = spawn_procs().spawn("one", OneByOne)
    mesh.with_a_task.call_one().get(timeout=EVENT_S)
    assert mesh.let_go_on.call_one().get(timeout=EVENT_S)


def test_work_overlaps_in_concurrent_endpoints_and_behind_explicit_ports(spawn_procs: Spawn) -> None:
    mesh = spawn_procs().spawn("one", OneByOne)
    waiting = [mesh.beside.call_one(), mesh.beside.call_one()]
    by_port = mesh.by_port.call_one()
    mesh.with_a_task.call_one().get(timeout=EVENT_S)
    for future in (*waiting, by_port):
        assert_pending(future)
    assert mesh.let_go_on.call_one().get(timeout=EVENT_S)
    assert [future.get(timeout=EVENT_S) for future in (*waiting, by_port)] == [True, True, "later"]


class SyncInWorker(Actor):
    @endpoint
    def loop_is_hidden(self, other: Any) -> tuple[str, int, list[str]]:
        try:
            asyncio.get_running_loop()
            found = "a loop"
        except RuntimeError:
            found = "no loop"
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            value = other.add.call_one(1).get(timeout=EVENT_S)
        return found, value, [str(warning.message) for warning in seen]


def test_sync_endpoints_see_no_loop_and_get_blocks_without_a_warning(spawn_procs: Spawn) -> None:
    procs = spawn_procs()
    mesh, other = procs.spawn("sync", SyncInWorker), procs.spawn("other", Counter)
    assert mesh.loop_is_hidden.call_one(other).get(timeout=EVENT_S) == ("no loop", 1, [])


# --- the order of messages ---


class Ordered(Actor):
    def __init__(self) -> None:
        self.got: list[Any] = []

    @endpoint
    def note(self, value: Any) -> int:
        self.got.append(value)
        return len(self.got)

    @endpoint
    def all(self) -> list[Any]:
        return self.got

    @endpoint
    def change(self, values: list[int]) -> list[int]:
        values.append(99)
        return values

    @endpoint
    def send_all(self, to: Any, name: int, count: int) -> None:
        for i in range(count):
            to.note.broadcast((name, i))
        to.all.call().get(timeout=EVENT_S)

    @endpoint
    def send_to_port(self, port: Port[int], count: int) -> None:
        for i in range(count):
            port.send(i)


def test_messages_of_one_sender_keep_their_order_whatever_the_adverb_and_the_slice(
    spawn_procs: Spawn,
) -> None:
    mesh = spawn_procs({"gpus": 2}).spawn("ordered", Ordered)
    one = mesh.slice(gpus=1)
    again = mesh.slice(gpus=slice(1, 2))
    for i in range(0, 500, 5):
        mesh.note.broadcast(i)
        one.note.call_one(i + 1)
        again.note.choose(i + 2)
        mesh.note.stream(i + 3)
        again.flatten("flat").note.call(i + 4)
    assert one.all.call_one().get(timeout=EVENT_S) == list(range(500))


def test_each_sender_has_its_own_order_and_all_threads_of_the_client_are_one_sender(
    spawn_procs: Spawn,
) -> None:
    procs = spawn_procs({"gpus": 3})
    target = procs.slice(gpus=0).spawn("target", Ordered)
    senders = procs.slice(gpus=slice(1, 3)).spawn("senders", Ordered)
    sending = [senders.slice(gpus=rank).send_all.call_one(target, rank, 100) for rank in range(2)]
    for i in range(100):
        # Each on another thread, behind the one before.
        thread = threading.Thread(target=target.note.broadcast, args=(("client", i),))
        thread.start()
        thread.join()
    for future in sending:
        future.get(timeout=EVENT_S)
    got = target.all.call_one().get(timeout=EVENT_S)
    for name in (0, 1, "client"):
        assert [i for who, i in got if who == name] == list(range(100))
    assert len(got) == 300


def test_calls_made_straight_after_a_spawn_find_the_actor(spawn_procs: Spawn) -> None:
    procs = spawn_procs({"gpus": 2})
    for i in range(20):
        assert procs.spawn("ordered", Ordered).note.call(i).get(timeout=EVENT_S).values() == [1, 1]


def test_what_is_sent_to_one_port_arrives_in_its_order(spawn_procs: Spawn) -> None:
    port, receiver = Channel[int].open()
    spawn_procs().spawn("ordered", Ordered).send_to_port.broadcast(port, 200)
    assert [receiver.recv().get(timeout=EVENT_S) for _ in range(200)] == list(range(200))


def test_arguments_and_results_are_copies_inside_one_process_too() -> None:
    mesh = this_proc().spawn("ordered", Ordered)
    values = [1]
    assert mesh.change.call_one(values).get(timeout=EVENT_S) == [1, 99]
    assert values == [1]
    kept = [2]
    mesh.note.call_one(kept).get(timeout=EVENT_S)
    kept.append(3)
    assert mesh.all.call_one().get(timeout=EVENT_S) == [[2]]
    mesh.stop().get(timeout=EVENT_S)


# --- slices and ranks ---


class Ranks(Actor):
    @endpoint
    def ranks(self) -> tuple[int, dict[str, str], dict[str, str]]:
        message, own = context().message_rank, context().actor_instance.rank
        return (
            os.getpid(),
            {label: f"{message[label]}/{message.size(label)}" for label in message},
            {label: f"{own[label]}/{own.size(label)}" for label in own},
        )

    @endpoint
    def rank(self) -> dict[str, int]:
        return dict(current_rank())


@pytest.fixture
def ranks(spawn_procs: Spawn, failures: Failures) -> Any:
    return spawn_procs({"rows": 2, "columns": 3}).spawn("ranks", Ranks)


def test_slicing_makes_no_actors_and_a_slice_of_one_takes_call_one(ranks: Any) -> None:
    pids = [pid for pid, *_ in ranks.ranks.call().get(timeout=EVENT_S).values()]
    assert len(set(pids)) == 6
    for place, pid in enumerate(pids):
        row, column = divmod(place, 3)
        one = ranks.slice(rows=row, columns=slice(column, column + 1))
        assert one.ranks.call_one().get(timeout=EVENT_S)[0] == pid


def test_coordinates_of_results_are_those_of_the_slice_that_was_called(ranks: Any) -> None:
    part = ranks.slice(rows=1, columns=slice(1, 3))
    values = part.rank.call().get(timeout=EVENT_S)
    assert values.sizes == {"columns": 2}
    assert [(dict(point), value) for point, value in values.items()] == [
        ({"columns": 0}, {"columns": 0}),
        ({"columns": 1}, {"columns": 1}),
    ]


def test_message_rank_is_of_the_callers_slice_and_rank_of_the_spawned_mesh(ranks: Any) -> None:
    part = ranks.slice(rows=1, columns=slice(0, 3, 2)).rename(columns="ends")
    answers = part.ranks.call().get(timeout=EVENT_S).values()
    assert [answer[1:] for answer in answers] == [
        ({"ends": "0/2"}, {"rows": "1/2", "columns": "0/3"}),
        ({"ends": "1/2"}, {"rows": "1/2", "columns": "2/3"}),
    ]


def test_choose_gives_the_point_of_the_chosen_member_in_the_mesh_it_was_called_on(ranks: Any) -> None:
    part = ranks.slice(columns=slice(1, 3))
    for _ in range(20):
        _, message, own = part.ranks.choose().get(timeout=EVENT_S)
        column = int(own["columns"][0])
        assert message == {"rows": own["rows"], "columns": f"{column - 1}/2"}


def test_dimensions_of_procs_are_those_of_the_hosts_and_then_those_of_a_host(spawn_procs: Spawn) -> None:
    procs = spawn_procs({"numa": 2, "gpus": 2})
    assert [*this_host().extent, *procs.extent] == ["numa", "gpus"]
    assert procs.sizes == {"numa": 2, "gpus": 2}
