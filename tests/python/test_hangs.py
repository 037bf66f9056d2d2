"""Handlers that take long: told to the owner, once, with what they do; nothing fails."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import pathlib
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import EVENT_S, Failures, assert_pending
from gate import Gate, pass_gate
from monarch.actor import Actor, Hang, endpoint, this_proc
from monarch.config import configured

# PyDLL, and not CDLL: its calls keep the interpreter's lock.
libc = ctypes.PyDLL(None)
HUNG_S = 0.3


class Worker(Actor):
    def __init__(self, gate: str = "") -> None:
        if gate:
            pass_gate(gate)

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def wait_at(self, gate: str) -> str:
        pass_gate(gate)
        return "passed"

    @endpoint
    def hold_until_opened(self, fifo: str) -> str:
        libc.open(fifo.encode(), os.O_RDONLY)
        return "opened"


class Owner(Actor):
    """Whose `__supervise__` would be a failure's."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.told: queue.Queue[Hang] = queue.Queue()

    @endpoint
    def own(self, gate: str) -> None:
        import monarch.actor

        monarch.actor.hang_hook = self.told.put
        self.workers = this_proc().spawn("workers", Worker, hung_after_s=HUNG_S)
        self.pending = self.workers.wait_at.call_one(gate)

    def __supervise__(self, failure: Any) -> bool:
        self.failed.append(str(failure))
        return True

    @endpoint
    def next(self) -> tuple[str, bool, list[str]]:
        hang = self.told.get(timeout=EVENT_S)
        return hang.event.mesh, hang.recovered, self.failed


class Named(Actor):
    """Has a parameter of its own by that name."""

    def __init__(self, hung_after_s: str) -> None:
        self.given = hung_after_s

    @endpoint
    def what(self) -> str:
        return self.given


@pytest.fixture
def gate(tmp_path: pathlib.Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.close()


class Hook:
    def __init__(self) -> None:
        self.hangs: queue.Queue[Hang] = queue.Queue()

    def __call__(self, hang: Hang) -> None:
        self.hangs.put(hang)

    def next(self) -> Hang:
        return self.hangs.get(timeout=EVENT_S)

    def is_silent(self) -> bool:
        return self.hangs.empty()


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Hook:
    import monarch.actor

    hook = Hook()
    monkeypatch.setattr(monarch.actor, "hang_hook", hook)
    return hook


def known_failures() -> list[dict[str, Any]]:
    """What `monarchctl why` knows."""
    done = subprocess.run(
        [str(pathlib.Path(sys.executable).parent / "monarchctl"), "why", "--json"],
        capture_output=True,
        text=True,
        timeout=EVENT_S,
    )
    daemons = json.loads(done.stdout)["daemons"]
    return [record for daemon in daemons if daemon["answered"] for record in daemon["failures"]["failures"]]


def records_of(pid: int) -> list[dict[str, Any]]:
    return [record for record in known_failures() if record["event"]["pid"] == str(pid)]


def test_a_hang_and_its_end_are_told_once_and_nothing_fails(
    spawn_procs: Callable[..., Any], gate: Gate, hook: Hook, failures: Failures
) -> None:
    workers = spawn_procs({"gpus": 2}).spawn("workers", Worker, hung_after_s=HUNG_S)
    pid = workers.slice(gpus=1).pid.call_one().get(timeout=EVENT_S)
    pending = workers.slice(gpus=1).wait_at.call_one(gate.path)
    hang = hook.next()
    assert not hang.recovered
    assert hang.event.kind == "hung" and hang.event.mesh == "workers" and hang.event.rank == 1
    assert hang.event.pid == pid and hang.event.actor_class.endswith("Worker")
    assert hang.method == "wait_at" and hang.state in ("waiting", "starved") and hang.seconds >= HUNG_S
    assert "wait_at has been at work for" in hang.event.reason
    assert_pending(pending)
    (record,) = records_of(pid)
    assert record["event"]["kind"] == "FAILURE_KIND_HUNG" and record["event"]["mesh"] == "workers"
    assert record["hang"]["method"] == "wait_at" and not record["hang"]["recovered"]
    gate.let_pass()
    assert pending.get(timeout=EVENT_S) == "passed"
    over = hook.next()
    assert over.recovered and over.method == "wait_at" and over.seconds > hang.seconds
    assert over.event.rank == 1
    (record,) = records_of(pid)
    assert record["hang"]["recovered"] and int(record["hang"]["took_ms"]) >= HUNG_S * 1000
    assert "has ended after" in record["event"]["reason"]
    # The next one is another.
    pending = workers.slice(gpus=1).wait_at.call_one(gate.path)
    assert not hook.next().recovered
    gate.let_pass()
    assert pending.get(timeout=EVENT_S) == "passed"
    assert hook.next().recovered
    assert hook.is_silent()
    assert failures.seen == []


def test_without_a_threshold_nothing_is_told(spawn_procs: Callable[..., Any], gate: Gate, hook: Hook) -> None:
    procs = spawn_procs()
    silent = procs.spawn("silent", Worker)
    watched = procs.spawn("watched", Worker, hung_after_s=HUNG_S)
    held = [mesh.wait_at.call_one(gate.path) for mesh in (silent, watched)]
    assert hook.next().event.mesh == "watched"
    gate.let_pass(2)
    for pending in held:
        assert pending.get(timeout=EVENT_S) == "passed"
    assert hook.next().recovered
    assert hook.is_silent()


def test_the_configuration_gives_the_threshold_of_meshes_without_one(
    spawn_procs: Callable[..., Any], gate: Gate, hook: Hook
) -> None:
    procs = spawn_procs()
    with configured(hung_after="300ms"):
        never = procs.spawn("never", Worker, hung_after_s=0)
        configured_one = procs.spawn("configured", Worker)
    held = [mesh.wait_at.call_one(gate.path) for mesh in (never, configured_one)]
    assert hook.next().event.mesh == "configured"
    gate.let_pass(2)
    for pending in held:
        assert pending.get(timeout=EVENT_S) == "passed"
    assert hook.next().recovered
    assert hook.is_silent()


def test_a_held_interpreter_and_a_stopped_process_are_told_apart(
    spawn_procs: Callable[..., Any], tmp_path: pathlib.Path, gate: Gate, hook: Hook, failures: Failures
) -> None:
    workers = spawn_procs({"gpus": 2}).spawn("workers", Worker, hung_after_s=HUNG_S)
    workers.pid.call().get(timeout=EVENT_S)
    fifo = str(tmp_path / "fifo")
    os.mkfifo(fifo)
    holding = workers.slice(gpus=0).hold_until_opened.call_one(fifo)
    try:
        hang = hook.next()
        assert hang.state == "interpreter held" and hang.event.rank == 0, hang
    finally:
        os.close(os.open(fifo, os.O_WRONLY))
    assert holding.get(timeout=EVENT_S) == "opened"
    assert hook.next().recovered
    pid = workers.slice(gpus=1).pid.call_one().get(timeout=EVENT_S)
    stopped = workers.slice(gpus=1).wait_at.call_one(gate.path)
    os.kill(pid, signal.SIGSTOP)
    try:
        hang = hook.next()
        assert hang.state == "stopped" and hang.event.rank == 1, hang
    finally:
        os.kill(pid, signal.SIGCONT)
    gate.let_pass()
    assert stopped.get(timeout=EVENT_S) == "passed"
    assert hook.next().recovered
    assert failures.seen == []


def test_an_init_that_does_not_end_is_told(spawn_procs: Callable[..., Any], gate: Gate, hook: Hook) -> None:
    workers = spawn_procs().spawn("workers", Worker, gate.path, hung_after_s=HUNG_S)
    hang = hook.next()
    assert hang.method == "__init__" and hang.event.mesh == "workers"
    gate.let_pass()
    workers.pid.call_one().get(timeout=EVENT_S)
    assert hook.next().recovered


def test_an_actor_of_the_clients_own_process_is_told(gate: Gate, hook: Hook) -> None:
    here = this_proc().spawn("here", Worker, hung_after_s=HUNG_S)
    pending = here.wait_at.call_one(gate.path)
    hang = hook.next()
    assert (
        hang.event.mesh == "here" and hang.event.pid == os.getpid() and hang.state in ("waiting", "starved")
    )
    gate.let_pass()
    assert pending.get(timeout=EVENT_S) == "passed"
    assert hook.next().recovered
    here.stop().get(timeout=EVENT_S)


def test_who_dies_has_not_recovered(
    spawn_procs: Callable[..., Any], gate: Gate, hook: Hook, failures: Failures
) -> None:
    workers = spawn_procs().spawn("workers", Worker, hung_after_s=HUNG_S)
    pid = workers.pid.call_one().get(timeout=EVENT_S)
    workers.wait_at.call_one(gate.path)
    assert not hook.next().recovered
    os.kill(pid, signal.SIGKILL)
    assert failures.wait()[0].event.kind == "signalled"
    kinds = [record["event"]["kind"] for record in records_of(pid)]
    assert sorted(kinds) == ["FAILURE_KIND_HUNG", "FAILURE_KIND_SIGNALLED"]
    assert hook.is_silent()


def test_an_owner_elsewhere_is_told_in_its_process_and_is_not_asked_to_supervise(
    spawn_procs: Callable[..., Any], gate: Gate, hook: Hook
) -> None:
    owner = spawn_procs().spawn("owner", Owner)
    owner.own.call_one(gate.path).get(timeout=EVENT_S)
    assert owner.next.call_one().get(timeout=2 * EVENT_S) == ("workers", False, [])
    gate.let_pass()
    assert owner.next.call_one().get(timeout=2 * EVENT_S) == ("workers", True, [])
    assert hook.is_silent()


def test_by_default_it_is_a_warning(
    spawn_procs: Callable[..., Any], gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    told: queue.Queue[logging.LogRecord] = queue.Queue()
    handler = logging.Handler()
    handler.emit = told.put  # type: ignore[method-assign]
    logging.getLogger("monarch").addHandler(handler)
    try:
        workers = spawn_procs().spawn("workers", Worker, hung_after_s=HUNG_S)
        pending = workers.wait_at.call_one(gate.path)
        record = told.get(timeout=EVENT_S)
        assert record.levelno == logging.WARNING
        assert "Worker of mesh workers rank 0" in record.getMessage()
        assert "hung: wait_at has been at work for" in record.getMessage()
        gate.let_pass()
        pending.get(timeout=EVENT_S)
        assert "has ended after" in told.get(timeout=EVENT_S).getMessage()
    finally:
        logging.getLogger("monarch").removeHandler(handler)


def test_a_hook_that_raises_is_printed_and_called_again(
    spawn_procs: Callable[..., Any],
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    failures: Failures,
) -> None:
    import monarch.actor

    told: queue.Queue[Hang] = queue.Queue()

    def hook(hang: Hang) -> None:
        told.put(hang)
        raise RuntimeError("from the hook")

    monkeypatch.setattr(monarch.actor, "hang_hook", hook)
    workers = spawn_procs().spawn("workers", Worker, hung_after_s=HUNG_S)
    pending = workers.wait_at.call_one(gate.path)
    told.get(timeout=EVENT_S)
    gate.let_pass()
    assert pending.get(timeout=EVENT_S) == "passed"
    assert told.get(timeout=EVENT_S).recovered
    assert "RuntimeError: from the hook" in capfd.readouterr().err
    assert failures.seen == []


def test_a_hook_that_raises_is_called_again_where_nobody_can_be_told(
    spawn_procs: Callable[..., Any], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    import monarch.actor

    told: queue.Queue[Hang] = queue.Queue()

    def hook(hang: Hang) -> None:
        told.put(hang)
        raise RuntimeError("from the hook")

    monkeypatch.setattr(monarch.actor, "hang_hook", hook)
    workers = spawn_procs().spawn("workers", Worker, hung_after_s=HUNG_S)
    monkeypatch.setattr(sys, "stderr", None)
    pending = workers.wait_at.call_one(gate.path)
    assert not told.get(timeout=EVENT_S).recovered
    gate.let_pass()
    assert pending.get(timeout=EVENT_S) == "passed"
    assert told.get(timeout=EVENT_S).recovered


def test_a_threshold_is_checked_at_the_spawn(spawn_procs: Callable[..., Any]) -> None:
    procs = spawn_procs()
    for wrong in (-1, 0.01, float("nan")):
        with pytest.raises(ValueError, match=r"hung_after_s is at least 0.1 seconds, or 0 for never"):
            procs.spawn("workers", Worker, hung_after_s=wrong)
    with pytest.raises(TypeError, match="hung_after_s is a number of seconds, not '1s'"):
        procs.spawn("workers", Worker, hung_after_s="1s")
    named = procs.spawn("named", Named, hung_after_s="mine")
    assert named.what.call_one().get(timeout=EVENT_S) == "mine"
