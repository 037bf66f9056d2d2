"""Actors that several tests use; importable in the workers."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from monarch.actor import (
    Actor,
    HostMesh,
    ProcMesh,
    context,
    current_rank,
    current_size,
    endpoint,
    this_host,
    this_proc,
)


class Counter(Actor):
    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.thread = threading.get_ident()

    @endpoint
    def add(self, amount: int = 1, *, twice: bool = False) -> int:
        self.value += amount * (2 if twice else 1)
        return self.value

    @endpoint
    def get(self) -> int:
        return self.value

    @endpoint
    def echo(self, value: Any) -> Any:
        return value

    @endpoint
    def where(self) -> tuple[int, int, dict[str, int], dict[str, int]]:
        return os.getpid(), current_rank().rank, dict(current_rank()), current_size()

    @endpoint
    def same_thread(self) -> bool:
        return threading.get_ident() == self.thread

    @endpoint
    def fail(self, text: str) -> None:
        raise ValueError(text)

    @endpoint
    def fail_on(self, rank: int) -> int:
        if current_rank().rank >= rank:
            raise ValueError(f"rank {current_rank().rank} fails")
        return current_rank().rank

    @endpoint
    def chained(self) -> None:
        try:
            raise KeyError("Inner exception")
        except KeyError as error:
            raise RuntimeError("Outer exception") from error

    @endpoint
    def raise_base(self) -> None:
        raise SystemExit(3)

    @endpoint
    def unpicklable_result(self) -> Any:
        return threading.Lock()

    @endpoint
    def unpicklable_exception(self) -> None:
        class Own(Exception):
            def __reduce__(self) -> Any:
                raise TypeError("this exception stays here")

        raise Own("secret")

    @endpoint
    def exit(self, status: int) -> None:
        os._exit(status)

    @endpoint
    def die(self, number: int = signal.SIGKILL) -> None:
        os.kill(os.getpid(), number)
        threading.Event().wait()

    @endpoint
    def abort(self, reason: str | None) -> None:
        context().actor_instance.abort(reason)

    def plain(self, value: int) -> int:
        return self.value + value

    LIMIT = 3


class Owner(Actor):
    """Spawns processes and actors of its own."""

    def __init__(self, handles: bool) -> None:
        self.handles = handles
        self.seen: list[str] = []

    @endpoint
    def spawn(self, count: int) -> Any:
        self.procs = this_host().spawn_procs({"inner": count})
        self.mesh = self.procs.spawn("inner", Counter)
        return self.mesh

    @endpoint
    def spawn_here(self) -> Any:
        return this_proc().spawn("beside", Counter)

    @endpoint
    def call(self, method: str, *args: Any) -> Any:
        return getattr(self.mesh, method).call(*args).get()

    @endpoint
    def try_call(self, method: str, *args: Any) -> str:
        try:
            getattr(self.mesh, method).call(*args).get()
        except Exception as error:
            return type(error).__name__
        return "no error"

    @endpoint
    def reports(self) -> list[str]:
        return self.seen

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    def __supervise__(self, failure: Any) -> bool:
        self.seen.append(failure.report())
        return self.handles


class FailingInit(Actor):
    def __init__(self, rank: int) -> None:
        if current_rank().rank == rank:
            raise ValueError("no such device")

    @endpoint
    def ping(self) -> int:
        return current_rank().rank


class ExitingInit(Actor):
    def __init__(self, rank: int, status: int) -> None:
        if current_rank().rank == rank:
            print("about to leave", flush=True)
            import sys

            print("the last words", file=sys.stderr, flush=True)
            os._exit(status)

    @endpoint
    def ping(self) -> int:
        return current_rank().rank


class Cleaning(Actor):
    """Writes to a file what its clean-up was told."""

    def __init__(self, path: str) -> None:
        self.path = path

    @endpoint
    def fail(self) -> None:
        raise ValueError("failed on purpose")

    @endpoint
    def ping(self) -> str:
        return "pong"

    def __cleanup__(self, exc: Exception | None) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(f"cleanup {exc is not None} {'failed on purpose' in str(exc)}\n")


class Probe(Actor):
    """Tells where it is, and spawns there."""

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def host(self) -> HostMesh:
        return this_host()

    @endpoint
    def proc(self) -> ProcMesh:
        return this_proc()

    @endpoint
    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    @endpoint
    def directory(self) -> str:
        return os.getcwd()

    @endpoint
    def cpus(self) -> list[int]:
        return sorted(os.sched_getaffinity(0))

    @endpoint
    def ask(self, other: Any) -> int:
        pid: int = other.pid.call_one().get()
        return pid

    @endpoint
    def spawn_nested(self) -> Any:
        return this_host().spawn_procs({"inner": 2}).spawn("nested", Probe)

    @endpoint
    def spawn_here(self) -> Any:
        return this_proc().spawn("here", Probe)
