"""How a mesh is brought to a moment of its life at which a fault meets somebody, and what became of its calls."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from census import wait_exit
from live import EVENT_S, Client, Live, RemoteError, read_fifo
from matrix import DEATHS, Outcome

# From the fault to the end of each call, on a machine that is busy with other things.
CALL_S = 5.0
QUEUED = 5


class Cell:
    """One fault at one moment. `inside` is what the victim, a member of `faulty`, commits then: the fault itself, or, if
    that meets another process, to wait until `release`."""

    def __init__(self, live: Live, client: Client, outcome: Outcome, owning: bool = False) -> None:
        self.live, self.client, self.outcome, self.owning = live, client, outcome, owning
        self.moment, self.inside = outcome.moment, outcome.fault
        self.calls: list[int] = []  # those that are sent to the victim, under way in the client
        self.meshes = ["faulty"]
        self.gates: list[pathlib.Path] = []
        self.after_start: Callable[[], None] = lambda: None
        self._started: pathlib.Path | None = None
        self._open = contextlib.ExitStack()
        client.ask("from fault_actors import *")
        live.census.sessions.add(client.ask("process().runtime.session"))
        client.ask("(others, unharmed) = start_victims(1)", 60)

    def hold(self) -> None:
        """The victim waits at the moment, in place of committing anything."""
        self._started = self.live.fifo("held")
        self.gates.append(self.live.fifo("release"))
        self.inside = f"hold {self._started} {self.gates[0]}"

    def is_held(self) -> bool:
        return self._started is not None

    def reach(self) -> None:
        MOMENTS[self.moment](self)
        if self.moment not in ("idle", "queued call"):
            self.await_held()

    def await_held(self) -> None:
        """The victim, or another in its place, is at the moment."""
        if self._started:
            read_fifo(self._started)

    def release(self) -> None:
        """Whoever waits at a gate, or will; nobody has to."""
        for gate in self.gates:
            fd = os.open(gate, os.O_RDWR | os.O_NONBLOCK)
            self._open.callback(os.close, fd)  # until then there is something to read for who comes late
            os.write(fd, b"\n")

    def start(self) -> None:
        how = "start_owners(others)" if self.owning else "start_faulty()"
        self.client.ask(f"(procs, faulty) = {how}", 60)
        self.client.ask("victim = faulty.slice(gpus=1)")
        self.after_start()

    def send(self, call: str) -> None:
        self.calls.append(self.client.begin(f"{call}.get(timeout={EVENT_S})"))
        self.outcome.sent += 1

    def commit_later(self) -> Callable[[], None]:
        path = self.live.fifo("commit")
        self.client.ask(
            f"victim.commit_later.call_one({self.inside!r}, {str(path)!r}).get(timeout={EVENT_S})"
        )
        return lambda: path.open("w", encoding="utf-8").close()

    def ends(self, within: float = CALL_S) -> list[Any]:
        """How each call ended: with a value or with a `RemoteError`."""
        deadline = time.monotonic() + within
        ends: list[Any] = []
        for number in self.calls:
            try:
                ends.append(self.client.result(number, max(deadline - time.monotonic(), 0.1)))
                self.outcome.answered += 1
            except RemoteError as error:
                assert not error.is_a("TimeoutError"), error
                ends.append(error)
                self.outcome.failed += 1
        self.calls = []
        return ends

    def hold_call(self, name: str, member: str) -> None:
        """A call under way at somebody else, until `release`."""
        started, gate = self.live.fifo(f"{name}-started"), self.live.fifo(f"{name}-gate")
        self.gates.append(gate)
        self.send(f"{member}.run.call_one({f'hold {started} {gate}'!r})")
        read_fifo(started)

    def assert_others_unharmed(self) -> None:
        assert self.client.ask("unharmed.ping.call().get(timeout=10).values()") == [0]

    def continue_when_stopped(self) -> None:
        """A stopped process is not called dead, and its calls wait."""
        deadline = time.monotonic() + EVENT_S
        while not (stopped := [p.pid for p in self.live.census.take().values() if p.state == "T"]):
            assert time.monotonic() < deadline, "nobody has stopped"
        assert self.client.ask("failures_so_far()") == []
        (pid,) = stopped
        os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        self._open.close()


@contextlib.contextmanager
def opened(live: Live, client: Client, outcome: Outcome, **options: Any) -> Iterator[Cell]:
    cell = Cell(live, client, outcome, **options)
    try:
        yield cell
    finally:
        cell.close()


def _before_ready(cell: Cell) -> None:
    cell.client.ask(f"procs = spawn_faulty({cell.inside!r})")
    cell.send("procs.initialized")


def _in_init(cell: Cell) -> None:
    cell.start()
    cell.meshes.append("broken")
    if cell.owning:
        cell.client.ask(f"broken = start_broken_owner(procs, {cell.inside!r}, others)")
    else:
        cell.client.ask(f"broken = start_broken(procs, {cell.inside!r})")
    cell.client.ask("victim = broken.slice(gpus=1)")
    cell.send("victim.ping.call_one()")


def _idle(cell: Cell) -> None:
    cell.start()
    if cell.is_held():
        return
    (_, pid) = cell.client.ask("procs.pids()")
    cell.commit_later()()
    if cell.inside in (*DEATHS, "memory"):
        assert wait_exit(pid, EVENT_S)
    cell.send("victim.ping.call_one()")


def _queued_call(cell: Cell) -> None:
    cell.start()
    commit = None if cell.is_held() else cell.commit_later()
    cell.hold_call("queue", "victim")
    cell.client.ask(f"queued = [victim.ping.call_one() for _ in range({QUEUED})]")
    for i in range(QUEUED):
        cell.send(f"queued[{i}]")
    if commit:
        commit()


def _running_call(cell: Cell) -> None:
    cell.start()
    cell.send(f"victim.run.call_one({cell.inside!r})")


def _replying(cell: Cell) -> None:
    cell.start()
    cell.send(f"victim.reply.call_one({cell.inside!r})")


def _stopping(cell: Cell) -> None:
    cell.start()
    cell.client.ask(f"victim.commit_at_the_end.call_one({cell.inside!r}).get(timeout={EVENT_S})")
    cell.send("procs.stop()")


MOMENTS: dict[str, Callable[[Cell], None]] = {
    "before ready": _before_ready,
    "in __init__": _in_init,
    "idle": _idle,
    "queued call": _queued_call,
    "running call": _running_call,
    "replying": _replying,
    "stopping": _stopping,
}
