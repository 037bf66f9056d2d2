"""Runs a command with a bound on its time; nothing it started in its process group stays."""

import contextlib
import os
import pathlib
import select
import signal
import subprocess


def run(command: list[str], timeout_s: float, cwd: pathlib.Path, env: dict[str, str] | None = None) -> int:
    """Its exit status, negative for a signal; 124 when the time was up. Output goes where ours goes."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=cwd, env=env, start_new_session=True)
    try:
        return process.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        print(f"test: no end after {timeout_s:.0f} s: {' '.join(command[:6])}", flush=True)
        return 124
    finally:
        end_group(process)


def end_group(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_marked(mark: str) -> None:
    """Kills every process that has `mark` (NAME=value) in its environment, until there is none."""
    while pids := _marked(mark.encode()):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            _wait_gone(pid)


def _marked(mark: bytes) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if mark in file.read().split(b"\0"):  # a zombie's is empty
                found.append(int(name))
    return found


def _wait_gone(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        try:
            select.select([fd], [], [], 5)
        finally:
            os.close(fd)
