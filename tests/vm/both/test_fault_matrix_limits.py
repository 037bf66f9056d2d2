"""The two faults of a worker that the kernel's limits make, at each moment of its life: who needs more memory than it may
have is ended, with that as its cause, and who makes more processes than it may goes on without them.

Run is a sample of the cells, each fault among them; `--full` runs all.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import Session
from fault_cell import EVENT_S, Cell, opened
from live import RemoteError
from matrix import LIMIT_FAULTS, Outcome, cells

TARGET = "worker with limits"
NO_SUCH_CELL: dict[tuple[str, str], str] = {}
LIMITS = {"memory_max": 256 << 20, "pids_max": 60}


def assert_failed(cell: Cell, end: Any) -> None:
    assert isinstance(end, RemoteError), end
    assert end.is_a("SupervisionError"), end
    assert (end.fields["rank"], end.fields["code"]) == (1, 9), end.fields
    if cell.moment == "before ready":
        assert end.fields["kind"] == "start_failed", end.fields
        assert "lack of memory" in end.fields["text"], end.fields
    else:
        assert end.fields["kind"] == "out_of_memory", end.fields


def assert_told(session: Session, cell: Cell) -> None:
    if cell.outcome.fault == "fork bomb" or cell.moment in ("before ready", "stopping"):
        assert cell.client.ask("failures_so_far()") == []
    else:
        told = cell.client.ask(f"failures({len(cell.meshes)})")
        assert sorted(failure["mesh"] for failure in told) == sorted(cell.meshes)
        assert {failure["kind"] for failure in told} == {"out_of_memory"}, told
    if cell.outcome.fault == "memory":
        assert session.risen("memory.events", "oom_group_kill") == 1
        (daemon,) = json.loads(session.why_json())["daemons"]
        newest = daemon["failures"]["failures"][0]["event"]
        assert newest["kind"] == "FAILURE_KIND_OUT_OF_MEMORY", newest


def assert_ends(session: Session, cell: Cell) -> None:
    ends = cell.ends(EVENT_S)
    fault = cell.outcome.fault
    if cell.moment == "stopping":
        assert ends == [None]
    elif fault == "memory":
        for end in ends:
            assert_failed(cell, end)
    elif cell.moment == "before ready":
        # Its own threads cannot be made any more.
        (end,) = ends
        assert isinstance(end, RemoteError) and end.is_a("SpawnError"), end
        assert "start the service thread: Resource temporarily unavailable" in end.fields["text"]
    else:
        assert set(ends) == {"answered"}
    assert_told(session, cell)
    cell.assert_others_unharmed()


@pytest.mark.parametrize(("moment", "fault"), cells(first=3, faults=LIMIT_FAULTS))
def test_a_limit_meets_a_worker(outcome: Outcome, session: Session, moment: str, fault: str) -> None:
    client = session.client
    with opened(session.live, client, outcome) as cell:
        client.ask(f"import fault_actors; fault_actors.LIMITS.update({LIMITS!r})")
        try:
            cell.reach()
            if fault == "fork bomb":
                cell.release()
            assert_ends(session, cell)
        finally:
            for mesh in ("procs", "others"):
                client.ask(f"{mesh}.stop().exception(timeout={EVENT_S}) and None", EVENT_S)
        session.wait_for_leaves(1)
