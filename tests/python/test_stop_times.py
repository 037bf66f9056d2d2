"""How long a stop waits for clean-ups, actors and processes, and what it says of those that take longer."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from monarch.actor import Actor, endpoint
from monarch.config import configured


class Lingering(Actor):
    @endpoint
    def nothing(self) -> None:
        pass

    def __cleanup__(self, error: Exception | None) -> None:
        threading.Event().wait(20)


def test_cleanup_timeout_bounds_cleanup(spawn_procs: Any) -> None:
    with configured(cleanup_timeout="100ms"):
        procs = spawn_procs()
    lingering = procs.spawn("lingering", Lingering)
    lingering.nothing.call_one().get()
    started = time.monotonic()
    lingering.stop().get()
    assert time.monotonic() - started < 2.5  # and not the 3 s of the default


def test_stop_actor_timeout_bounds_a_stop(spawn_procs: Any) -> None:
    lingering = spawn_procs().spawn("lingering", Lingering)
    lingering.nothing.call_one().get()
    with configured(stop_actor_timeout="100ms"):
        started = time.monotonic()
        lingering.stop().get()
        assert time.monotonic() - started < 2.5


class Stuck(Actor):
    @endpoint
    def stay(self) -> None:
        while True:
            threading.Event().wait(1)


def test_process_exit_timeout_bounds_the_wait_before_a_process_is_terminated(spawn_procs: Any) -> None:
    procs = spawn_procs()
    stuck = procs.spawn("stuck", Stuck)
    procs.initialized.get()
    stuck.stay.broadcast()
    with configured(process_exit_timeout="200ms"):
        started = time.monotonic()
        procs.stop().get()
        assert time.monotonic() - started < 8  # and not the 10 s of the default


def test_a_stop_may_have_a_time_of_its_own(spawn_procs: Any, caplog: pytest.LogCaptureFixture) -> None:
    procs = spawn_procs()
    stuck = procs.spawn("stuck", Stuck)
    procs.initialized.get()
    stuck.stay.broadcast()
    stuck.stop(timeout=0.2).get()
    procs.stop(timeout=0.3).get()
    told = [record.getMessage() for record in caplog.records if record.name == "monarch"]
    assert len(told) == 2, told
    assert "did not stop within 0.2 s" in told[0] and "ranks [0]" in told[0]
    assert "did not leave within 0.3 s" in told[1] and "ended by signal 15" in told[1]


@pytest.mark.parametrize("wrong", [-1, float("inf"), float("nan")])
def test_a_stop_has_no_such_time(spawn_procs: Any, wrong: float) -> None:
    procs = spawn_procs()
    for mesh in (procs, procs.spawn("lingering", Lingering)):
        with pytest.raises(ValueError, match="timeout"):
            mesh.stop(timeout=wrong)
