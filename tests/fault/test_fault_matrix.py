"""Each fault of a worker process at each moment of its life: every call ends, the failure is of the right kind and has
the right first cause, nobody else is touched, and nothing is left.

Run is a third of the cells, each fault and each moment among them; `--full` runs all.
"""

from __future__ import annotations

import os
import pathlib
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from census import wait_exit
from live import EVENT_S, FULL, Client, Live, RemoteError

# The process ends -> kind, code.
DEATHS = {
    "SIGKILL": ("signalled", int(signal.SIGKILL)),
    "SIGSEGV": ("signalled", int(signal.SIGSEGV)),
    "SIGABRT": ("signalled", int(signal.SIGABRT)),
    "throw": ("signalled", int(signal.SIGABRT)),  # an uncaught exception of C++
    "exit 7": ("exited", 7),
    "exit 0": ("stopped", 0),
}
CRASHES = (signal.SIGSEGV, signal.SIGABRT)
# It goes on: without TERM, and when it is continued.
SURVIVED = ("ignore TERM", "SIGSTOP")
FAULTS = (*DEATHS, *SURVIVED, "raise")
QUEUED = 5
NO_SUCH_CELL = {
    ("idle", "raise"): "no handler runs that could raise",
    ("queued call", "raise"): "a call in the queue runs no code yet that could raise",
}


class Cell:
    """One fault at one moment. `calls`: those that are sent to the victim, under way in the client."""

    def __init__(self, live: Live, client: Client, moment: str, fault: str) -> None:
        self.live, self.client, self.moment, self.fault = live, client, moment, fault
        self.calls: list[int] = []
        self.meshes = ["faulty"]
        self.gate: pathlib.Path | None = None

    def start(self) -> None:
        self.client.ask("(procs, faulty) = start_faulty()", 60)
        self.client.ask("victim = faulty.slice(gpus=1)")

    def send(self, call: str) -> None:
        self.calls.append(self.client.begin(f"{call}.get(timeout={EVENT_S})"))

    def commit_later(self) -> Callable[[], None]:
        path = self.live.fifo("commit")
        self.client.ask(f"victim.commit_later.call_one({self.fault!r}, {str(path)!r}).get(timeout={EVENT_S})")
        return lambda: path.open("w", encoding="utf-8").close()

    def continue_when_stopped(self) -> None:
        """A stopped process is not called dead, and its calls wait."""
        deadline = time.monotonic() + EVENT_S
        while not (stopped := [p.pid for p in self.live.census.take().values() if p.state == "T"]):
            assert time.monotonic() < deadline, "nobody has stopped"
        assert self.client.ask("failures(1, 0)") == []
        (pid,) = stopped
        os.kill(pid, signal.SIGCONT)

    def ends(self) -> list[Any]:
        """How each call ended: with a value or with a `RemoteError`."""
        ends: list[Any] = []
        for number in self.calls:
            try:
                ends.append(self.client.result(number))
            except RemoteError as error:
                ends.append(error)
        return ends


def before_ready(cell: Cell) -> None:
    cell.client.ask(f"procs = spawn_faulty({cell.fault!r})")
    cell.send("procs.initialized")


def in_init(cell: Cell) -> None:
    cell.start()
    cell.meshes.append("broken")
    cell.client.ask(f"victim = procs.spawn('broken', FaultyStart, {cell.fault!r}).slice(gpus=1)")
    cell.send("victim.ping.call_one()")


def idle(cell: Cell) -> None:
    cell.start()
    (_, pid) = cell.client.ask("procs.pids()")
    cell.commit_later()()
    if cell.fault in DEATHS:
        assert wait_exit(pid, EVENT_S)
    cell.send("victim.ping.call_one()")


def queued_call(cell: Cell) -> None:
    cell.start()
    started, cell.gate = cell.live.fifo("started"), cell.live.fifo("gate")
    commit = cell.commit_later()
    cell.send(f"victim.hold.call_one({str(started)!r}, {str(cell.gate)!r})")
    started.open(encoding="utf-8").close()
    cell.client.ask(f"queued = [victim.ping.call_one() for _ in range({QUEUED})]")
    for i in range(QUEUED):
        cell.send(f"queued[{i}]")
    commit()


def running_call(cell: Cell) -> None:
    cell.start()
    cell.send(f"victim.run.call_one({cell.fault!r})")


def replying(cell: Cell) -> None:
    cell.start()
    cell.send(f"victim.reply.call_one({cell.fault!r})")


def stopping(cell: Cell) -> None:
    cell.start()
    cell.client.ask(f"victim.commit_at_the_end.call_one({cell.fault!r}).get(timeout={EVENT_S})")
    cell.send("procs.stop()")


MOMENTS: dict[str, Callable[[Cell], None]] = {
    "before ready": before_ready,
    "in __init__": in_init,
    "idle": idle,
    "queued call": queued_call,
    "running call": running_call,
    "replying": replying,
    "stopping": stopping,
}
CELLS = [
    (moment, fault)
    for i, moment in enumerate(MOMENTS)
    for j, fault in enumerate(FAULTS)
    if FULL or (i + j) % 3 == 0
]


def first_cause(event: dict[str, Any]) -> dict[str, Any]:
    while event["cause"]:
        event = event["cause"]
    return event


def assert_failed(cell: Cell, end: Any) -> None:
    """The first error of a call to a process that has died says all of it."""
    assert isinstance(end, RemoteError), end
    kind, code = DEATHS[cell.fault]
    fields = end.fields
    assert end.is_a("SupervisionError")
    assert (fields["rank"], fields["code"]) == (1, code), fields
    if cell.moment == "before ready":
        assert (fields["kind"], fields["phase"]) == ("start_failed", "launched"), fields
        assert (f"killed by signal {code}" if kind == "signalled" else f"status {code}") in fields["text"]
        return
    assert fields["kind"] == kind, fields
    text = {"signalled": f"Killed(sig={code})", "exited": f"exited with non-zero code {code}"}
    assert text.get(kind, "exited with status 0") in fields["text"]


def assert_told(cell: Cell) -> None:
    """Who owns the victim is told of a failure once for each mesh, with its first cause; of a good end not."""
    if (cell.moment, cell.fault) == ("in __init__", "raise"):
        (failure,) = cell.client.ask("failures(1)")
        assert (failure["kind"], failure["mesh"]) == ("exception", "broken")
        return
    if cell.fault not in DEATHS or cell.fault == "exit 0" or cell.moment == "before ready":
        assert cell.client.ask("failures(1, 0)") == []
        return
    told = cell.client.ask(f"failures({len(cell.meshes)})")
    assert sorted(failure["mesh"] for failure in told) == sorted(cell.meshes)
    for failure in told:
        cause = first_cause(failure)
        assert (cause["kind"], cause["code"], cause["rank"]) == (*DEATHS[cell.fault], 1)
        assert ("raised by the process itself" in cause["backtrace"]) == (cause["code"] in CRASHES), cause
        assert ("thrown on purpose" in cause["stderr_tail"]) == (cell.fault == "throw")


def assert_ends(cell: Cell) -> None:
    """All calls have ended: answered by who survives it, else failed."""
    ends = cell.ends()
    if cell.fault in DEATHS:
        for end in ends:
            assert_failed(cell, end)
    elif cell.fault in SURVIVED:
        assert set(ends) == {True if cell.moment == "before ready" else "answered"}
    else:
        assert_raised(cell, *ends)
    assert_told(cell)


def assert_raised(cell: Cell, end: Any) -> None:
    assert isinstance(end, RemoteError), end
    assert "ValueError: raised on purpose" in end.fields["text"]
    if cell.moment == "in __init__":
        assert end.fields["kind"] == "exception"
    elif cell.moment == "before ready":
        assert (end.fields["kind"], end.fields["code"]) == ("start_failed", 1)
    else:
        assert end.is_a("ActorError")
        assert cell.client.ask("victim.ping.call_one().get(timeout=10)") == "answered"


def assert_stopped(cell: Cell) -> None:
    """Who is being stopped is gone afterwards, whatever it does; an exception in `__cleanup__` is a failure."""
    assert cell.ends() == [None]
    told = cell.client.ask(f"failures({int(cell.fault == 'raise')}, {EVENT_S})")
    assert [failure["kind"] for failure in told] == (["exception"] if cell.fault == "raise" else [])


@pytest.mark.parametrize(("moment", "fault"), CELLS)
def test_a_fault_of_a_worker(live: Live, moment: str, fault: str) -> None:
    if (moment, fault) in NO_SUCH_CELL:
        pytest.skip(f"no such cell: {NO_SUCH_CELL[moment, fault]}")
    client = live.client()
    client.ask("from fault_actors import *")
    client.ask("(others, unharmed) = start_victims(1)", 60)
    cell = Cell(live, client, moment, fault)
    MOMENTS[moment](cell)
    if fault == "SIGSTOP":
        cell.continue_when_stopped()
    if cell.gate and fault not in DEATHS:
        cell.gate.open("w", encoding="utf-8").close()
    if moment == "stopping":
        assert_stopped(cell)
    else:
        assert_ends(cell)
    if moment not in ("before ready", "stopping"):
        assert client.ask("faulty.slice(gpus=0).ping.call_one().get(timeout=10)") == "answered"
    assert client.ask("unharmed.ping.call().get(timeout=10).values()") == [0]
    assert client.finish() == 0
    live.assert_gone()
