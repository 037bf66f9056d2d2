"""A worker whose C code holds the interpreter lock: nobody is taken for dead, others go on, and a stop ends it all the same."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from conftest import EVENT_S, Failures, assert_pending, wait_gone
from monarch.actor import Actor, SupervisionError, endpoint
from monarch.config import configured

# PyDLL, and not CDLL: its calls keep the lock.
libc = ctypes.PyDLL(None)

# Longer than the five seconds after which a host that says nothing is dead.
HOLD_S = 6.0


class Holder(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def hold(self, seconds: float, fifo: str | None = None) -> float:
        """Returns the longest time for which no other thread ran Python; tells a pipe when that begins."""
        gaps, done = [0.0], threading.Event()

        def tick() -> None:
            last = time.monotonic()
            while not done.wait(0.001):
                now = time.monotonic()
                gaps.append(now - last)
                last = now

        ticking = threading.Thread(target=tick)
        ticking.start()
        told = -1 if fifo is None else os.open(fifo, os.O_WRONLY)
        # From here to the sleep no other thread gets the lock, and so none runs once the pipe is told.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e6)
        libc.write(told, b"x", 1)
        libc.usleep(int(seconds * 1e6))
        sys.setswitchinterval(interval)
        done.set()
        ticking.join()
        return max(gaps)

    @endpoint
    def hold_until_opened(self, fifo: str) -> None:
        libc.open(fifo.encode(), os.O_RDONLY)

    @endpoint
    def wait_until_opened(self, fifo: str) -> None:
        with open(fifo, encoding="utf-8"):
            pass


@pytest.fixture
def fifo(tmp_path: Any) -> str:
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    return path


@pytest.fixture
def holders(spawn_procs: Callable[..., Any]) -> Any:
    holders = spawn_procs({"gpus": 2}).spawn("holders", Holder)
    holders.pid.call().get(timeout=EVENT_S)
    return holders


def test_a_held_lock_is_no_death_and_others_go_on(
    spawn_procs: Callable[..., Any], fifo: str, failures: Failures
) -> None:
    procs = spawn_procs({"gpus": 2})
    holders, beside = procs.spawn("holders", Holder), procs.spawn("beside", Holder)
    pids = holders.pid.call().get(timeout=EVENT_S).values()
    held, free = holders.slice(gpus=0), holders.slice(gpus=1)
    started = time.monotonic()
    holding = held.hold.call_one(HOLD_S, fifo)
    with open(fifo, "rb", buffering=0) as told:
        assert told.read(1) == b"x"
    waiting = beside.slice(gpus=0).pid.call_one()
    answered = 0
    while time.monotonic() - started < HOLD_S / 2:
        assert free.pid.call_one().get(timeout=EVENT_S) == pids[1]
        answered += 1
    assert answered > 20
    assert_pending(waiting)
    assert_pending(holding)
    assert holding.get(timeout=EVENT_S) > HOLD_S - 0.5
    assert waiting.get(timeout=EVENT_S) == pids[0]
    assert holders.pid.call().get(timeout=EVENT_S).values() == pids
    assert failures.seen == []


def test_a_stop_ends_a_process_whose_lock_is_held_in_its_time_and_says_so(
    spawn_procs: Callable[..., Any], fifo: str, failures: Failures, caplog: pytest.LogCaptureFixture
) -> None:
    procs = spawn_procs({"gpus": 2})
    holders = procs.spawn("holders", Holder)
    pids = holders.pid.call().get(timeout=EVENT_S).values()
    pending = holders.slice(gpus=1).hold_until_opened.call_one(fifo)
    with configured(process_exit_timeout="1s"):
        started = time.monotonic()
        procs.stop().get(timeout=EVENT_S)
        assert 0.9 < time.monotonic() - started < 8
    assert all(wait_gone(pid, 0) for pid in pids)
    with pytest.raises(SupervisionError, match="stopped by client; ended by signal 15"):
        pending.get(timeout=EVENT_S)
    (said,) = caplog.messages
    assert f"process {pids[1]} of mesh" in said
    assert "{'gpus': 1/2} on" in said
    assert "did not leave within 1 s: ended by signal 15" in said
    assert failures.seen == []


@pytest.mark.parametrize("method", ["hold_until_opened", "wait_until_opened"])
def test_a_stop_of_actors_gives_up_on_one_that_is_at_work_and_says_so(
    holders: Any, fifo: str, method: str, failures: Failures, caplog: pytest.LogCaptureFixture
) -> None:
    pending = getattr(holders.slice(gpus=1), method).call_one(fifo)
    with configured(stop_actor_timeout="1s"):
        started = time.monotonic()
        holders.stop().get(timeout=EVENT_S)
        assert 0.9 < time.monotonic() - started < 8
    (said,) = caplog.messages
    assert "actors of mesh 'holders' did not stop within 1 s" in said and "ranks [1]" in said
    with open(fifo, "w", encoding="utf-8"):
        # It finishes what it had begun.
        assert pending.get(timeout=EVENT_S) is None
    assert failures.seen == []


PROGRAM = """
import ctypes, os, threading
import monarch
from monarch.actor import Actor, SupervisionError, endpoint, this_host

class Holder(Actor):
    @endpoint
    def pid(self):
        return os.getpid()
    @endpoint
    def hold(self):
        ctypes.PyDLL(None).pause()
    @endpoint
    def hang(self):
        threading.Event().wait()

procs = this_host().spawn_procs({"gpus": 2})
holders = procs.spawn("holders", Holder)
print(*holders.pid.call().get().values())
"""


def test_a_stop_ends_a_process_whose_endpoint_never_returns_in_its_time_and_says_so(run_python: Any) -> None:
    program = """
monarch.configure(process_exit_timeout="1s")
pending = holders.slice(gpus=1).hang.call_one()
procs.stop().get()
print(pending.exception())
"""
    done = run_python("-c", PROGRAM + program)
    pids, pending = done.out.splitlines()
    assert done.status == 0
    assert all(wait_gone(int(pid), 0) for pid in pids.split())
    assert pending.endswith("has status: stopped: stopped by client")
    assert (
        "the process leaves after 1 s without its actor: <root>.<__main__.Holder holders{'gpus': 1/2}>"
        in done.err
    )
    assert done.err.rstrip().endswith("runs hang()")
    assert done.seconds < 10


def test_a_program_ends_at_once_and_leaves_no_process_whose_lock_is_held(run_python: Any) -> None:
    done = run_python("-c", PROGRAM + "holders.hold.broadcast()")
    assert (done.status, done.err) == (0, "")
    assert all(wait_gone(int(pid), 0) for pid in done.out.split())
    assert done.seconds < 10
