"""What actors are seen to be at work on: by the daemon, whatever their processes do."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import EVENT_S, Failures
from gate import Gate, pass_gate
from monarch.actor import Activity, Actor, activities, concurrent_endpoint, endpoint

# PyDLL, and not CDLL: its calls keep the interpreter's lock.
libc = ctypes.PyDLL(None)


class Worker(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def wait_at(self, gate: str) -> None:
        pass_gate(gate)

    @endpoint
    def hold_until_opened(self, fifo: str) -> None:
        libc.open(fifo.encode(), os.O_RDONLY)

    @endpoint
    def compute_until(self, path: str, cpu: int | None = None) -> None:
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
        while not os.path.exists(path):
            pass


class Slow(Actor):
    def __init__(self, gate: str) -> None:
        pass_gate(gate)

    @endpoint
    def ready(self) -> None: ...


class Suspended(Actor):
    def __init__(self) -> None:
        self.events = {"first": asyncio.Event(), "second": asyncio.Event()}

    @concurrent_endpoint
    async def first(self) -> None:
        await self.events["first"].wait()

    @concurrent_endpoint
    async def second(self) -> None:
        await self.events["second"].wait()

    @concurrent_endpoint
    async def end(self, name: str) -> None:
        self.events[name].set()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.close()


@pytest.fixture
def workers(spawn_procs: Callable[..., Any]) -> Any:
    workers = spawn_procs({"gpus": 2}).spawn("workers", Worker)
    workers.pid.call().get(timeout=EVENT_S)
    return workers


def seen(mesh: Any, wanted: Callable[[Activity | None], bool], **at: int) -> Activity | None:
    """Of one member, once it is as wanted."""
    deadline = time.monotonic() + EVENT_S
    while time.monotonic() < deadline:
        found: Any = activities(mesh).slice(**at).item() if at else activities(mesh).item()
        if wanted(found):
            return found
    raise AssertionError(f"seen last: {found}")


def is_in(*states: str) -> Callable[[Activity | None], bool]:
    return lambda activity: activity is not None and activity.state in states


def is_idle(activity: Activity | None) -> bool:
    return activity is None


def test_an_endpoint_that_sleeps_is_seen_with_its_age_and_an_idle_actor_is_not(
    workers: Any, gate: Gate, failures: Failures
) -> None:
    for gpu in (0, 1):
        assert seen(workers, is_idle, gpus=gpu) is None
    pid = workers.slice(gpus=1).pid.call_one().get(timeout=EVENT_S)
    started = time.monotonic()
    pending = workers.slice(gpus=1).wait_at.call_one(gate.path)
    found = seen(workers, is_in("waiting"), gpus=1)
    assert found is not None and found.method == "wait_at" and found.pid == pid
    assert 1 <= found.seconds <= time.monotonic() - started + 0.1
    assert activities(workers).slice(gpus=0).item() is None
    gate.let_pass()
    pending.get(timeout=EVENT_S)
    assert seen(workers, is_idle, gpus=1) is None
    assert failures.seen == []


def test_a_held_interpreter_is_told_from_one_that_computes(
    workers: Any, tmp_path: Path, failures: Failures
) -> None:
    fifo, stop = str(tmp_path / "fifo"), tmp_path / "stop"
    os.mkfifo(fifo)
    holding = workers.slice(gpus=0).hold_until_opened.call_one(fifo)
    computing = workers.slice(gpus=1).compute_until.call_one(str(stop))
    try:
        found = seen(workers, is_in("interpreter held"), gpus=0)
        assert found is not None and found.method == "hold_until_opened"
        # On a busy machine it may lack a CPU; the lock is never the reason.
        assert seen(workers, is_in("computing", "starved"), gpus=1) is not None
    finally:
        stop.touch()
        os.close(os.open(fifo, os.O_WRONLY))
    holding.get(timeout=EVENT_S)
    computing.get(timeout=EVENT_S)
    assert seen(workers, is_idle, gpus=0) is None
    assert failures.seen == []


def test_a_stopped_process_is_told_and_goes_on(workers: Any, gate: Gate, failures: Failures) -> None:
    pid = workers.slice(gpus=0).pid.call_one().get(timeout=EVENT_S)
    pending = workers.slice(gpus=0).wait_at.call_one(gate.path)
    assert seen(workers, is_in("waiting"), gpus=0) is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        assert seen(workers, is_in("stopped"), gpus=0) is not None
    finally:
        os.kill(pid, signal.SIGCONT)
    assert seen(workers, is_in("waiting"), gpus=0) is not None
    gate.let_pass()
    pending.get(timeout=EVENT_S)
    assert failures.seen == []


def test_a_starved_process_is_told(workers: Any, tmp_path: Path, failures: Failures) -> None:
    stop = tmp_path / "stop"
    cpu = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    load = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(6)]
    try:
        pending = workers.slice(gpus=0).compute_until.call_one(str(stop), cpu)
        assert seen(workers, is_in("starved"), gpus=0) is not None
    finally:
        stop.touch()
        for process in load:
            process.kill()
            process.wait()
    pending.get(timeout=EVENT_S)
    assert failures.seen == []


def test_of_suspended_endpoints_the_oldest_is_seen(spawn_procs: Callable[..., Any]) -> None:
    actor = spawn_procs().spawn("suspended", Suspended)
    first = actor.first.call_one()
    assert seen(actor, lambda a: a is not None and a.method == "first") is not None
    second = actor.second.call_one()
    found = seen(actor, is_in("waiting"))
    assert found is not None and found.method == "first"
    actor.end.call_one("first").get(timeout=EVENT_S)
    first.get(timeout=EVENT_S)
    found = seen(actor, lambda a: a is not None and a.method == "second")
    # Since it began, and not since the first ended; it was seen about a second ago.
    assert found is not None and found.seconds > 0.5
    actor.end.call_one("second").get(timeout=EVENT_S)
    second.get(timeout=EVENT_S)
    assert seen(actor, is_idle) is None


def test_an_init_that_does_not_end_is_seen(spawn_procs: Callable[..., Any], gate: Gate) -> None:
    slow = spawn_procs().spawn("slow", Slow, gate.path)
    assert seen(slow, lambda a: a is not None and a.method == "__init__") is not None
    gate.let_pass()
    slow.ready.call_one().get(timeout=EVENT_S)
    assert seen(slow, is_idle) is None
