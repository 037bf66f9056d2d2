"""Processes that meet a fault at a given moment of their life."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from typing import Any

import limit_faults
from census import SLOWER
from monarch.actor import Actor, BootstrapCommand, current_rank, default_bootstrap_cmd, endpoint, this_host

__all__ = [
    "LIMITS",
    "Faulty",
    "FaultyStart",
    "commit",
    "spawn_faulty",
    "start_broken",
    "start_broken_owner",
    "start_faulty",
    "start_owners",
]

VICTIM = 1  # the rank
LIMITS: dict[str, int] = {}  # of all that are spawned here


class Uncaught(BaseException):
    """Goes through whatever handles exceptions."""


def commit(fault: str, uncaught: bool = False) -> None:
    """Returns where the process survives the fault."""
    if fault == "raise":
        raise Uncaught if uncaught else ValueError("raised on purpose")
    if fault == "throw":  # an exception of C++, which nobody catches
        ctypes.CDLL("libstdc++.so.6")["_ZSt20__throw_out_of_rangePKc"](b"thrown on purpose")
    elif fault == "ignore TERM":
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal(signal.SIGTERM, 1)  # SIG_IGN; of Python's own only the main thread may do it
        os.kill(os.getpid(), signal.SIGTERM)
    elif fault.startswith("hold "):
        _, started, gate = fault.split()
        with open(started, "w", encoding="utf-8") as fifo:
            fifo.write(f"{os.getpid()}\n")
        with open(gate, encoding="utf-8") as fifo:
            fifo.readline()
    elif fault == "memory":
        limit_faults.exhaust_memory()
    elif fault == "fork bomb":
        limit_faults.fork_bomb()
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
    def commit_at_the_end(self, fault: str) -> None:
        self._at_the_end = fault

    def __cleanup__(self, exc: Exception | None) -> None:
        if self._at_the_end:
            commit(self._at_the_end)


class Owner(Faulty):
    """Owns a process with an actor, and an actor on a process of others."""

    def __init__(self, others: Any, fault: str = "") -> None:
        super().__init__()
        rank = current_rank().rank
        procs = this_host().spawn_procs({"gpus": 1}, name=f"owned_procs{rank}")
        self._owned = procs.spawn("owned", Faulty)
        self._guest = others.spawn("guest", Faulty)
        self._pid = next(iter(procs.pids()))
        for mesh in (self._owned, self._guest):
            mesh.ping.call().get(timeout=30)
        if fault and rank == VICTIM:
            commit(fault)

    @endpoint
    def belongings(self) -> tuple[Any, Any, int]:
        return self._owned, self._guest, self._pid


class FaultyStart(Actor):
    def __init__(self, fault: str) -> None:
        if current_rank().rank == VICTIM:
            commit(fault)

    @endpoint
    def ping(self) -> str:
        return "answered"


def start_faulty() -> tuple[Any, Any]:
    procs = this_host().spawn_procs({"gpus": 2}, name="faulty_procs", **LIMITS)
    faulty = procs.spawn("faulty", Faulty)
    faulty.ping.call().get(timeout=30 * SLOWER)
    return procs, faulty


def start_owners(others: Any) -> tuple[Any, Any]:
    procs = this_host().spawn_procs({"gpus": 2}, name="faulty_procs")
    faulty = procs.spawn("faulty", Owner, others)
    faulty.ping.call().get(timeout=30)
    return procs, faulty


def start_broken(procs: Any, fault: str) -> Any:
    return procs.spawn("broken", FaultyStart, fault)


def start_broken_owner(procs: Any, fault: str, others: Any) -> Any:
    return procs.spawn("broken", Owner, others, fault)


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

    return this_host().spawn_procs({"gpus": 2}, bootstrap_command=command, name="faulty_procs", **LIMITS)
