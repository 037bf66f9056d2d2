"""What runs into the limits of a worker's cgroup."""

from __future__ import annotations

import os
import signal
import threading


def exhaust_memory() -> None:
    """Takes memory, and uses it, until the kernel ends this process."""
    taken = []
    while True:
        taken.append(bytearray(os.urandom(4096)) * 256)


def fork_bomb() -> int:
    """Each process that it makes makes more, until the kernel refuses: EAGAIN. They leave the process group and its
    session, and take no TERM. Returns, in the first process alone, how many that one has made."""
    made = 0
    first = True
    while True:
        try:
            pid = os.fork()
        except BlockingIOError:
            if first:
                return made
            threading.Event().wait()
        if pid == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            first = False
        made += 1
