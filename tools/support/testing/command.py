"""Runs a command with a bound on its time; nothing it started in its process group stays."""

import contextlib
import os
import pathlib
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
