"""How actors end: in the middle of anything, on time, and heard of by all who wait."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import types
from typing import Any, cast

import pytest
from conftest import EVENT_S, Failures
from gate import Gate, pass_gate
from monarch._actor import owned
from monarch.actor import Actor, ActorError, Channel, Port, SupervisionError, context, endpoint, this_host
from sample_actors import Counter


class HangingInit(Actor):
    def __init__(self) -> None:
        threading.Event().wait()

    @endpoint
    def ping(self) -> None: ...


class HangingAsyncInit(Actor):
    def __init__(self) -> None:
        threading.Event().wait()

    @endpoint
    async def ping(self) -> None: ...


class Gated(Actor):
    """Its `__init__` ends when a file's other end is opened."""

    def __init__(self, fifo: str) -> None:
        with open(fifo, encoding="utf-8") as file:
            self.log = [file.read()]

    @endpoint
    def append(self, text: str) -> list[str]:
        self.log.append(text)
        return self.log


class Busy(Actor):
    @endpoint
    def pass_gate(self, path: str) -> None:
        pass_gate(path)


class HangingCleanup(Actor):
    @endpoint
    def ping(self) -> int:
        return 1

    @endpoint
    def leave(self) -> None:
        raise SystemExit(3)

    def __cleanup__(self, exc: Exception | None) -> None:
        threading.Event().wait()


class BlockingAsyncCleanup(Actor):
    @endpoint
    async def ping(self) -> int:
        return 1

    async def __cleanup__(self, exc: Exception | None) -> None:
        threading.Event().wait()


class Ends(Actor):
    """Ends itself from elsewhere than an endpoint."""

    @endpoint
    def from_a_thread(self, how: str) -> None:
        instance = context().actor_instance
        idle = threading.Timer(0.05, getattr(instance, how), ("from a thread",))
        idle.daemon = True
        idle.start()


class AsyncEnds(Actor):
    @endpoint
    async def from_a_task(self, how: str) -> None:
        instance = context().actor_instance

        async def later() -> None:
            await asyncio.sleep(0.05)
            getattr(instance, how)("from a task")

        self.task = asyncio.create_task(later())

    @endpoint
    async def abort_and_wait(self) -> None:
        context().actor_instance.abort("at once")
        await asyncio.Event().wait()

    @endpoint
    async def task_leaves(self) -> None:
        async def later() -> None:
            raise SystemExit(7)

        self.task = asyncio.create_task(later())
        await asyncio.Event().wait()

    @endpoint
    async def ping(self) -> int:
        return 1


class DiesOrWaits(Actor):
    @endpoint
    def go(self, release: str) -> None:
        if context().message_rank.rank == 1:
            os.kill(os.getpid(), 9)
        with open(release, encoding="utf-8"):
            pass

    @endpoint
    def leave(self) -> None:
        raise SystemExit(1)


@pytest.mark.parametrize("cls", [HangingInit, HangingAsyncInit])
def test_an_init_that_never_returns_does_not_block_a_stop(
    spawn_procs: Any, cls: type[Any], failures: Failures
) -> None:
    mesh = spawn_procs({"gpus": 2}).spawn("hanging", cls)
    pending = mesh.ping.call()
    mesh.initialized.get(timeout=EVENT_S)
    started = time.monotonic()
    mesh.stop().get(timeout=EVENT_S)
    assert time.monotonic() - started < 5
    with pytest.raises(SupervisionError, match="stopped"):
        pending.get(timeout=EVENT_S)
    assert failures.seen == []


def test_an_init_that_never_returns_does_not_block_the_end_of_its_process(failures: Failures) -> None:
    procs = this_host().spawn_procs({"gpus": 1})
    procs.spawn("hanging", HangingInit).initialized.get(timeout=EVENT_S)
    started = time.monotonic()
    procs.stop().get(timeout=EVENT_S)
    assert time.monotonic() - started < 5


class BusyInit(Actor):
    def __init__(self, port: Port[None]) -> None:
        port.send(None)
        while True:
            context()


def test_a_process_is_left_in_good_order_while_an_actor_is_at_work(
    failures: Failures, caplog: pytest.LogCaptureFixture
) -> None:
    procs = this_host().spawn_procs({"gpus": 2})
    port, made = Channel[None].open()
    procs.spawn("busy", BusyInit, port)
    for _ in range(2):
        made.recv().get(timeout=EVENT_S)
    procs.stop().get(timeout=EVENT_S)
    assert caplog.messages == []  # of crashes


def test_calls_made_during_a_long_init_keep_their_order(spawn_procs: Any, tmp_path: Any) -> None:
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    mesh = spawn_procs().spawn("gated", Gated, fifo)
    calls = [mesh.append.call_one(str(i)) for i in range(200)]
    with pytest.raises(TimeoutError):
        calls[0].get(timeout=0.3)
    with open(fifo, "w", encoding="utf-8") as file:
        file.write("init")
    assert calls[-1].get(timeout=EVENT_S) == ["init", *map(str, range(200))]


def test_cleanup_has_a_time_limit(spawn_procs: Any, failures: Failures) -> None:
    procs = spawn_procs({"gpus": 1})
    stopped = [procs.spawn("slow", cls) for cls in (HangingCleanup, BlockingAsyncCleanup)]
    failed = procs.spawn("failed", HangingCleanup)
    for mesh in (*stopped, failed):
        mesh.ping.call().get(timeout=EVENT_S)
    started = time.monotonic()
    pending = failed.leave.call()
    for stop in [mesh.stop() for mesh in stopped]:
        stop.get(timeout=EVENT_S)
    with pytest.raises(SupervisionError, match="SystemExit"):
        pending.get(timeout=EVENT_S)
    assert 2.5 < time.monotonic() - started < 8
    assert failures.wait()[0].mesh_name == "failed"


@pytest.mark.parametrize("cls", ["Ends", "AsyncEnds"])
@pytest.mark.parametrize("how", ["abort", "stop"])
def test_an_idle_actor_can_be_ended_from_elsewhere(
    spawn_procs: Any, cls: str, how: str, failures: Failures
) -> None:
    mesh = spawn_procs({"gpus": 1}).spawn("ends", {"Ends": Ends, "AsyncEnds": AsyncEnds}[cls])
    (mesh.from_a_thread if cls == "Ends" else mesh.from_a_task).call(how).get(timeout=EVENT_S)
    if how == "abort":
        assert "actor explicitly aborted due to: from a" in failures.wait()[0].report()
        return
    mesh.stop().get(timeout=EVENT_S)
    assert failures.seen == []


def test_an_abort_does_not_wait_for_the_endpoint_that_waits(spawn_procs: Any, failures: Failures) -> None:
    mesh = spawn_procs({"gpus": 1}).spawn("ends", AsyncEnds)
    with pytest.raises(SupervisionError, match="explicitly aborted due to: at once"):
        mesh.abort_and_wait.call().get(timeout=EVENT_S)
    failures.wait()


def test_a_task_that_leaves_ends_the_actor(spawn_procs: Any, failures: Failures) -> None:
    mesh = spawn_procs({"gpus": 1}).spawn("ends", AsyncEnds)
    with pytest.raises(SupervisionError, match="SystemExit"):
        mesh.task_leaves.call().get(timeout=EVENT_S)
    failures.wait()
    with pytest.raises(SupervisionError):
        mesh.ping.call().get(timeout=EVENT_S)


def test_a_dead_member_does_not_wait_for_a_slow_one(
    spawn_procs: Any, tmp_path: Any, failures: Failures
) -> None:
    release = str(tmp_path / "fifo")
    os.mkfifo(release)
    mesh = spawn_procs({"gpus": 2}).spawn("mesh", DiesOrWaits)
    with pytest.raises(SupervisionError) as caught:
        mesh.go.call(release).get(timeout=EVENT_S)
    assert caught.value.event is not None
    assert (caught.value.event.rank, caught.value.event.code) == (1, 9)
    with open(release, "w", encoding="utf-8"):
        pass


def test_calls_that_meet_an_end_are_answered(spawn_procs: Any, failures: Failures) -> None:
    procs = spawn_procs({"gpus": 1})
    for _ in range(100):
        mesh = procs.spawn("leaves", DiesOrWaits).slice(gpus=0)
        assert isinstance(mesh.leave.call_one().exception(timeout=EVENT_S), SupervisionError)
        assert isinstance(mesh.leave.call_one().exception(timeout=EVENT_S), SupervisionError)


class SpawnsAndFails(Actor):
    """Fails while what it owns is still being made, on processes of another owner."""

    @endpoint
    def go(self, procs: Any, calls: Any) -> None:
        self.mesh = procs.spawn("left", Counter)
        calls.send(self.mesh)
        raise SystemExit(1)


def test_an_owner_takes_along_what_it_is_still_making(spawn_procs: Any, failures: Failures) -> None:
    from monarch.actor import Channel

    owner = spawn_procs().spawn("owner", SpawnsAndFails)
    procs = spawn_procs({"gpus": 2})
    port, receiver = Channel.open()
    with pytest.raises(SupervisionError):
        owner.go.call_one(procs, port).get(timeout=EVENT_S)
    left = receiver.recv().get(timeout=EVENT_S)
    with pytest.raises(SupervisionError):
        left.get.call().get(timeout=EVENT_S)


def test_a_bootstrap_function_that_leaves_fails_the_mesh_only(spawn_procs: Any, failures: Failures) -> None:
    def bootstrap() -> None:
        raise SystemExit(7)

    with pytest.raises(ActorError, match="the bootstrap function ended with SystemExit"):
        spawn_procs({"gpus": 1}, bootstrap=bootstrap).initialized.get(timeout=EVENT_S)
    assert failures.seen == []


def test_a_second_stop_waits_for_what_the_first_one_waits_for(
    spawn_procs: Any, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    mesh = spawn_procs({"gpus": 1}).spawn("busy", Busy)
    mesh.pass_gate.broadcast(gate.path)
    first, second = mesh.stop(), mesh.stop()
    with pytest.raises(TimeoutError):
        second.get(timeout=0.2)
    gate.let_pass()
    for stop in (first, second):
        stop.get(timeout=EVENT_S)
    assert caplog.messages == []


def test_a_stop_of_processes_that_cannot_be_asked_for_raises(
    spawn_procs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    procs = spawn_procs({"gpus": 1})
    procs.initialized.get(timeout=EVENT_S)

    def refuse(self: Any, *what: Any) -> None:
        raise RuntimeError("no daemon")

    with monkeypatch.context() as patch:
        patch.setattr(type(procs._core), "end_procs", refuse)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no daemon"):
                procs.stop().get(timeout=EVENT_S)
    procs._core.end_procs("after all")


def test_a_death_while_the_processes_are_being_stopped_is_no_failure(
    spawn_procs: Any, failures: Failures, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Also if it is noticed before the daemon knows of the stop."""
    procs, others = (spawn_procs({"gpus": 1}, name=name) for name in ("stopped", "killed"))
    busy = procs.spawn("busy", Busy)
    counter = others.spawn("counter", Counter)
    counter.add.call_one().get(timeout=EVENT_S)
    gate = Gate(tmp_path / "gate")
    gate.let_pass()
    busy.pass_gate.call_one(gate.path).get(timeout=EVENT_S)
    waiting = busy.pass_gate.call_one(gate.path)
    (pid,) = procs.pids()
    ask = type(procs._core).stop_procs

    def die_first(*what: Any) -> None:
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SupervisionError, match=r"Killed\(sig=9\)"):
            waiting.get(timeout=EVENT_S)
        ask(*what)

    with monkeypatch.context() as patch:
        patch.setattr(type(procs._core), "stop_procs", die_first)
        procs.stop().get(timeout=EVENT_S)
    os.kill(next(iter(others.pids())), signal.SIGKILL)
    (failure,) = failures.wait()
    assert failure.event.mesh == "counter"


def test_a_stop_of_processes_takes_their_actors_off_what_is_owned(spawn_procs: Any) -> None:
    before = list(context().actor_instance.owned)
    procs = spawn_procs({"gpus": 1})
    procs.spawn("counter", Counter).add.call_one().get(timeout=EVENT_S)
    procs.stop().get(timeout=EVENT_S)
    assert context().actor_instance.owned == before


def test_an_owner_ends_although_a_part_of_what_it_owns_cannot_be_asked_to() -> None:
    ended: list[str] = []

    class Mesh:
        is_procs = False

        def __init__(self, name: str, *, asks: bool = True, answers: bool = True) -> None:
            self.name, self.asks, self.answers = name, asks, answers

        def begin_stop(self, reason: str) -> Any:
            if not self.asks:
                raise RuntimeError("no daemon")
            return self.wait

        def wait(self, deadline: float) -> None:
            if not self.answers:
                raise TimeoutError
            ended.append(self.name)

    meshes = [Mesh("a"), Mesh("b", asks=False), Mesh("c", answers=False), Mesh("d")]
    owned.stop_owned(cast("Any", types.SimpleNamespace(owned=meshes)), "over")
    assert ended == ["a", "d"]


def test_what_an_actor_owns_stops_actors_first_and_within_one_limit() -> None:
    order: list[tuple[str, float]] = []

    class Mesh:
        def __init__(self, name: str, is_procs: bool) -> None:
            self.name, self.is_procs = name, is_procs

        def begin_stop(self, reason: str) -> Any:
            return lambda deadline: order.append((self.name, deadline))

    owner: Any = types.SimpleNamespace(
        owned=[Mesh("procs", True), Mesh("actors", False), Mesh("more", False)]
    )
    owned.stop_owned(owner, "over")
    assert owner.owned == []
    assert [name for name, _ in order] == ["actors", "more", "procs"]
    assert len({deadline for _, deadline in order}) == 1
