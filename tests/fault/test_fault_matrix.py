"""Each fault of a worker process at each moment of its life: every call ends, the failure is of the right kind and has
the right first cause, nobody else is touched, and nothing is left.

Run is a sample of the cells, each fault and each moment among them; `--full` runs all.
"""

from __future__ import annotations

from typing import Any

import pytest
from fault_cell import EVENT_S, Cell, opened
from live import Live, RemoteError
from matrix import CRASHES, DEATHS, SURVIVED, Outcome, cells
from neighbours import Neighbours

TARGET = "worker"
NO_SUCH_CELL = {
    ("idle", "raise"): "no handler runs that could raise",
    ("queued call", "raise"): "a call in the queue runs no code yet that could raise",
}


def first_cause(event: dict[str, Any]) -> dict[str, Any]:
    while event["cause"]:
        event = event["cause"]
    return event


def assert_failed(cell: Cell, end: Any) -> None:
    """The first error of a call to a process that has died says all of it."""
    assert isinstance(end, RemoteError), end
    kind, code = DEATHS[cell.outcome.fault]
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
    fault = cell.outcome.fault
    if (cell.moment, fault) == ("in __init__", "raise"):
        (failure,) = cell.client.ask("failures(1)")
        assert (failure["kind"], failure["mesh"]) == ("exception", "broken")
        return
    if fault not in DEATHS or fault == "exit 0" or cell.moment == "before ready":
        assert cell.client.ask("failures_so_far()") == []
        return
    told = cell.client.ask(f"failures({len(cell.meshes)})")
    assert sorted(failure["mesh"] for failure in told) == sorted(cell.meshes)
    for failure in told:
        cause = first_cause(failure)
        assert (cause["kind"], cause["code"], cause["rank"]) == (*DEATHS[fault], 1)
        assert ("raised by the process itself" in cause["backtrace"]) == (cause["code"] in CRASHES), cause
        assert ("thrown on purpose" in cause["stderr_tail"]) == (fault == "throw")


def assert_ends(cell: Cell) -> None:
    """All calls have ended: answered by who survives it, else failed."""
    ends = cell.ends()
    if cell.outcome.fault in DEATHS:
        for end in ends:
            assert_failed(cell, end)
    elif cell.outcome.fault in SURVIVED:
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
    assert cell.ends(EVENT_S) == [None]
    raised = cell.outcome.fault == "raise"
    told = cell.client.ask(f"failures({int(raised)})")
    assert [failure["kind"] for failure in told] == (["exception"] if raised else [])


@pytest.mark.parametrize(("moment", "fault"), cells())
def test_a_fault_of_a_worker(
    outcome: Outcome, live: Live, neighbours: Neighbours, moment: str, fault: str
) -> None:
    client = live.client(address=neighbours.address)
    with opened(live, client, outcome) as cell:
        cell.reach()
        if fault == "SIGSTOP":
            cell.continue_when_stopped()
        if fault not in DEATHS:
            cell.release()
        if moment == "stopping":
            assert_stopped(cell)
        else:
            assert_ends(cell)
        if moment not in ("before ready", "stopping"):
            assert client.ask("faulty.slice(gpus=0).ping.call_one().get(timeout=10)") == "answered"
        cell.assert_others_unharmed()
        assert client.finish() == 0
        live.assert_gone()
    neighbours.assert_untouched()
