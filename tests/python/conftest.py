"""What all tests share: a session of this process, a recorder of failures, and a check that no process is left."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gate import Gate

# Workers inherit it, so that this run's processes are told from anybody else's.
RUN_MARK = f"MONARCH_TEST_RUN={uuid.uuid4().hex}".encode()
os.environb.update([RUN_MARK.split(b"=")])

EVENT_S = 20.0  # for what must happen; reached only when it does not


def marked_processes() -> list[int]:
    """Workers of this run."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/environ", "rb") as file:
                env = file.read().split(b"\0")
            with open(f"/proc/{name}/comm", "rb") as file:
                launcher = file.read().startswith(b"monarch")
            if RUN_MARK in env and not launcher and any(e.startswith(b"MONARCH_SESSION=") for e in env):
                found.append(int(name))
    return found


def wait_gone(pid: int, timeout: float) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], timeout)[0])
    finally:
        os.close(fd)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fails a test that leaves workers behind."""
    before = set(marked_processes())
    yield
    deadline = time.monotonic() + 5
    left = [pid for pid in marked_processes() if pid not in before]
    left = [pid for pid in left if not wait_gone(pid, max(0.0, deadline - time.monotonic()))]
    assert not left, f"processes left behind: {left}"


class Failures:
    """Stands in for the fault hook: keeps what nobody handled, and lets the program go on."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._changed = threading.Condition()

    def __call__(self, failure: Any) -> None:
        with self._changed:
            self.seen.append(failure)
            self._changed.notify_all()

    def wait(self, count: int = 1) -> list[Any]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.seen) >= count, EVENT_S), self.seen
            return list(self.seen)


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> Failures:
    import monarch.actor

    recorder = Failures()
    monkeypatch.setattr(monarch.actor, "unhandled_fault_hook", recorder)
    return recorder


@pytest.fixture
def spawn_procs(failures: Failures) -> Iterator[Callable[..., Any]]:
    """this_host().spawn_procs, with a stop at the end of the test. Unexpected failures are recorded, not fatal."""
    from monarch.actor import this_host

    meshes = []

    def spawn(*args: Any, **kwargs: Any) -> Any:
        meshes.append(this_host().spawn_procs(*args, **kwargs))
        return meshes[-1]

    yield spawn
    for mesh in meshes:
        with contextlib.suppress(Exception):
            mesh.stop().get(timeout=EVENT_S)


def assert_pending(future: Any) -> None:
    """Nothing has come for it. (To look at it otherwise tells what was taken, and not what has come.)"""
    with pytest.raises(TimeoutError, match="no result within 0"):
        future.get(timeout=0)


class Finished:
    def __init__(self, process: subprocess.CompletedProcess[str], seconds: float) -> None:
        self.status = process.returncode
        self.out = process.stdout
        self.err = process.stderr
        self.seconds = seconds


@pytest.fixture
def run_python(tmp_path: Any) -> Callable[..., Finished]:
    """Runs this interpreter in an empty directory and returns how it ended."""

    def run(*args: str, stdin: str = "", timeout: float = 60, **kwargs: Any) -> Finished:
        started = time.monotonic()
        process = subprocess.run(
            [sys.executable, *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=kwargs.pop("cwd", tmp_path),
            **kwargs,
        )
        return Finished(process, time.monotonic() - started)

    return run


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Where handlers wait until the test opens it."""
    made = Gate(tmp_path / "gate")
    yield made
    made.close()
