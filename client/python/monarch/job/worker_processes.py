"""Worker loops that are processes of this machine."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from typing import NamedTuple


class ProcessState(NamedTuple):
    """A process of this machine, and the address that it serves."""

    pid: int
    channel: str


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def serves(process: ProcessState) -> bool:
    """Whether it lives and is a worker loop of that address, and not another process that got its id since."""
    try:
        with open(f"/proc/{process.pid}/cmdline", "rb") as file:
            arguments = file.read()
    except OSError:
        return False
    # There are none for a moment when a program begins.
    is_it = not arguments or os.fsencode(process.channel) in arguments.split(b"\0")
    return is_it and is_alive(process.pid)


def _has_ended(pidfd: int, timeout_s: float) -> bool:
    # Not select(), which takes no fd above 1023.
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def end_all(pids: Iterable[int], grace_s: float) -> None:
    """TERM to each, KILL to those that are still there after the grace. Returns when all are gone, or after twice the
    grace."""
    fds: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            fds[os.pidfd_open(pid)] = pid
    try:
        for deadline_s, number in ((grace_s, signal.SIGTERM), (grace_s, signal.SIGKILL)):
            left = [fd for fd in fds if not _has_ended(fd, 0.0)]
            for fd in left:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(fd, number)
            deadline = time.monotonic() + deadline_s
            for fd in left:
                _has_ended(fd, max(0.0, deadline - time.monotonic()))
    finally:
        for fd in fds:
            os.close(fd)
