"""Actors for tests that kill, stop and flood; importable in the workers."""

from __future__ import annotations

import base64
import os
import pickle
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import cloudpickle
from census import SLOWER
from monarch._actor.process import process
from monarch.actor import (
    Actor,
    Backoff,
    BootstrapCommand,
    Restart,
    current_rank,
    default_bootstrap_cmd,
    endpoint,
    shutdown_context,
    this_host,
)

__all__ = [
    "Broken",
    "Cleaning",
    "Owning",
    "Raising",
    "Victim",
    "flood",
    "pickled",
    "process",
    "rounds",
    "shutdown_context",
    "spawn",
    "spawn_call_stop",
    "spawn_with_one_that_waits",
    "start_restarted",
    "start_victims",
    "this_host",
    "unpickled",
]

# Prints its pid, keeps its environment, leaves its parent's session, and takes no TERM.
_GRANDCHILD = (
    "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); "
    "signal.pause()"
)


def end_process(how: str) -> None:
    """`how`: a signal's name, or `_exit N`."""
    word, _, number = how.partition(" ")
    if word == "_exit":
        os._exit(int(number))
    os.kill(os.getpid(), getattr(signal, word))
    threading.Event().wait()


class Cleaning(Actor):
    """Writes into a file what it is told, and when it cleans up."""

    def __init__(self, log: str, name: str, cleanup: str = "") -> None:
        self.log, self.name, self.cleanup = log, name, cleanup

    def _write(self, text: str) -> None:
        fd = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, f"{self.name} {text}\n".encode())
        os.close(fd)

    @endpoint
    def note(self, text: str) -> None:
        self._write(text)

    @endpoint
    def own(self) -> None:
        procs = this_host().spawn_procs({"gpus": 1})
        self.owned = procs.spawn("owned", Cleaning, self.log, "owned")
        self.owned.note.call_one("is there").get()

    @endpoint
    def hang(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as fifo:
            fifo.write(f"{os.getpid()}\n")
        threading.Event().wait()

    def __cleanup__(self, exc: Exception | None) -> None:
        exec(self.cleanup, {"threading": threading})
        self._write("cleaned")


class Victim(Actor):
    def __init__(self) -> None:
        self.seen = 0

    @endpoint
    def ping(self) -> int:
        return current_rank().rank

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def die(self, how: str) -> None:
        end_process(how)

    @endpoint
    def run(self, code: str) -> None:
        exec(compile(code, "<run>", "exec"), {})

    @endpoint
    def ask(self, other: Any, method: str, *arguments: Any) -> Any:
        return getattr(other, method).call_one(*arguments).get()

    @endpoint
    def hang(self, path: str) -> None:
        """Tells by a FIFO that it has begun, then never ends."""
        with open(path, "w", encoding="utf-8") as fifo:
            fifo.write(f"{os.getpid()}\n")
        threading.Event().wait()

    @endpoint
    def wait_for(self, path: str) -> int:
        """Blocks until someone opens the FIFO for writing."""
        with open(path, encoding="utf-8"):
            return self.seen

    @endpoint
    def take(self, data: Any) -> None:
        self.seen += 1

    @endpoint
    def echo(self, data: bytes) -> bytes:
        return data

    @endpoint
    def count(self) -> int:
        return self.seen

    @endpoint
    def family(self) -> int:
        """The pid of a grandchild in a session of its own, whose parent has ended."""
        code = (
            "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', sys.argv[1]], "
            "start_new_session=True, stdout=subprocess.PIPE); print(p.stdout.readline().decode())"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, _GRANDCHILD], stdout=subprocess.PIPE, check=True, text=True
        )
        return int(done.stdout)

    @endpoint
    def write(self, out: str, err: str) -> None:
        sys.stdout.write(out)
        sys.stdout.flush()
        sys.stderr.write(err)
        sys.stderr.flush()

    @endpoint
    def spew(self, count: int) -> int:
        """Writes much more than any pipe and buffer holds."""
        line = "x" * 99 + "\n"
        for _ in range(count):
            sys.stdout.write(line)
        sys.stdout.flush()
        return count

    @endpoint
    def watch(self, pid: int, timeout: float) -> bool:
        """Whether that process ends within the time."""
        fd = os.pidfd_open(pid)
        try:
            return bool(select.select([fd], [], [], timeout)[0])
        finally:
            os.close(fd)


class Broken(Actor):
    """Ends its process from `__init__`."""

    def __init__(self, rank: int, how: str) -> None:
        if current_rank().rank == rank:
            end_process(how)

    @endpoint
    def pid(self) -> int:
        return os.getpid()


class Raising(Actor):
    def __init__(self) -> None:
        raise ValueError("no such thing")

    @endpoint
    def pid(self) -> int:
        return os.getpid()


class Owning(Actor):
    """Fails with what it owns."""

    @endpoint
    def own(self, procs: Any) -> None:
        self.owned = procs.spawn("owned", Victim)
        self.owned.ping.call().get(timeout=30 * SLOWER)

    @endpoint
    def begin_wait(self, path: str) -> None:
        """What it owns waits until someone opens the FIFO for writing."""
        self.pending = self.owned.wait_for.call(path)

    @endpoint
    def end_wait(self) -> list[int]:
        return list(self.pending.get(timeout=30).values())


def spawn(count: int) -> Any:
    procs = this_host().spawn_procs({"gpus": count}, name="procs")
    procs.initialized.get(timeout=30 * SLOWER)
    return procs


def start_victims(count: int) -> tuple[Any, Any]:
    procs = spawn(count)
    victims = procs.spawn("victims", Victim)
    victims.ping.call().get(timeout=30 * SLOWER)
    return procs, victims


def start_restarted(count: int) -> tuple[Any, Any, Any]:
    """Processes that are started again, and a queue with an event for each time that they were."""
    restarts: queue.SimpleQueue[Any] = queue.SimpleQueue()
    policy = Restart.one_for_one(backoff=Backoff(first_s=0, jitter=0), on_restart=restarts.put)
    procs = this_host().spawn_procs({"gpus": count}, restart=policy)
    return procs, procs.spawn("restarted", Victim), restarts


def spawn_call_stop(count: int) -> list[int]:
    procs, victims = start_victims(count)
    values = list(victims.ping.call().get(timeout=60).values())
    procs.stop().get(timeout=60)
    return values


def spawn_with_one_that_waits(count: int, rank: int, path: str) -> Any:
    """One process never gets ready; it writes its pid into the FIFO."""
    code = f"import os, signal; open({path!r}, 'w').write(str(os.getpid()) + chr(10)); signal.pause()"
    waiting = BootstrapCommand(sys.executable, None, ["-c", code], {})

    def command(point: Any) -> BootstrapCommand:
        return waiting if point["gpus"] == rank else default_bootstrap_cmd()

    return this_host().spawn_procs({"gpus": count}, bootstrap_command=command, name="more")


def pickled(value: Any) -> str:
    return base64.b64encode(cloudpickle.dumps(value)).decode()


def unpickled(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))


def flood(mesh: Any, size: int, seconds: float) -> dict[str, Any]:
    """Sends without waiting for anything, until the time is up or a send is refused."""
    data = b"x" * size
    sent = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            mesh.take.broadcast(data)
        except Exception as error:
            return {"sent": sent, "error": f"{type(error).__mro__}: {error}"}
        sent += 1
    return {"sent": sent, "error": ""}


def rounds(count: int) -> None:
    """Starts and stops a mesh of two processes, again and again."""
    for _ in range(count):
        procs, victims = start_victims(2)
        victims.stop().get(timeout=30 * SLOWER)
        procs.stop().get(timeout=30 * SLOWER)
