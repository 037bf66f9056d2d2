"""Processes that meet a fault at a given moment of their life."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from typing import Any

from monarch.actor import Actor, BootstrapCommand, current_rank, default_bootstrap_cmd, endpoint, this_host

__all__ = ["Faulty", "FaultyStart", "spawn_faulty", "start_faulty"]

VICTIM = 1  # the rank


def commit(fault: str) -> None:
    """Returns where the process survives the fault."""
    if fault == "raise":
        raise ValueError("raised on purpose")
    if fault == "throw":  # an exception of C++, which nobody catches
        ctypes.CDLL("libstdc++.so.6")["_ZSt20__throw_out_of_rangePKc"](b"thrown on purpose")
    elif fault == "ignore TERM":
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal(signal.SIGTERM, 1)  # SIG_IGN; of Python's own only the main thread may do it
        os.kill(os.getpid(), signal.SIGTERM)
    elif fault.startswith("exit "):
        os._exit(int(fault.split()[1]))
    else:
        os.kill(os.getpid(), getattr(signal, fault))
        if fault != "SIGSTOP":
            threading.Event().wait()


class _Reply:
    """Commits the fault while it is made into bytes."""

    def __init__(self, fault: str) -> None:
        self._fault = fault

    def __reduce__(self) -> Any:
        commit(self._fault)
        return (str, ("answered",))


class Faulty(Actor):
    def __init__(self) -> None:
        self._at_the_end = ""

    @endpoint
    def ping(self) -> str:
        return "answered"

    @endpoint
    def run(self, fault: str) -> str:
        commit(fault)
        return "answered"

    @endpoint
    def reply(self, fault: str) -> Any:
        return _Reply(fault)

    @endpoint
    def commit_later(self, fault: str, path: str) -> None:
        """On a thread of its own, once the FIFO is opened for writing."""

        def wait() -> None:
            with open(path, encoding="utf-8"):
                commit(fault)

        threading.Thread(target=wait, daemon=True).start()

    @endpoint
    def hold(self, started: str, gate: str) -> str:
        """Opens one FIFO, then waits until the other is opened for writing."""
        with open(started, "w", encoding="utf-8"):
            pass
        with open(gate, encoding="utf-8"):
            return "answered"

    @endpoint
    def commit_at_the_end(self, fault: str) -> None:
        self._at_the_end = fault

    def __cleanup__(self, exc: Exception | None) -> None:
        if self._at_the_end:
            commit(self._at_the_end)


class FaultyStart(Actor):
    def __init__(self, fault: str) -> None:
        if current_rank().rank == VICTIM:
            commit(fault)

    @endpoint
    def ping(self) -> str:
        return "answered"


def start_faulty() -> tuple[Any, Any]:
    procs = this_host().spawn_procs({"gpus": 2}, name="faulty_procs")
    faulty = procs.spawn("faulty", Faulty)
    faulty.ping.call().get(timeout=30)
    return procs, faulty


def spawn_faulty(fault: str) -> Any:
    """The victim commits the fault before it is ready: in place of `default_bootstrap_cmd`, then as that does."""
    default = default_bootstrap_cmd()
    code = f"import sys, fault_actors; fault_actors.commit({fault!r})\n"
    arguments = list(default.args)
    at = arguments.index("-c") + 1
    arguments[at] = code + arguments[at]
    faulty = BootstrapCommand(sys.executable, None, arguments, {})

    def command(point: Any) -> BootstrapCommand:
        return faulty if point["gpus"] == VICTIM else default

    return this_host().spawn_procs({"gpus": 2}, bootstrap_command=command, name="faulty_procs")
