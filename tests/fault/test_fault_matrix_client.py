"""Each fault of a client at each moment of its calls: after two seconds there is nothing of its session, or it goes on and
all its calls are answered; the daemon and other sessions are not touched.

The calls of a client that is dead have nobody to whom they could end: they count as failed, with all that served them.
Run is a sample of the cells, each fault and each moment among them; `--full` runs all.
"""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from census import wait_exit
from fault_cell import EVENT_S, Cell, opened
from live import Client, Live
from matrix import DEATHS, Outcome, cells
from neighbours import Neighbours

TARGET = "client"
NO_SUCH_CELL: dict[tuple[str, str], str] = {}
# The status of a program that an exception ends.
RAISED = 1


def commit(client: Client, fault: str) -> None:
    """On its main thread, without waiting for an answer."""
    client.order(f"commit({fault!r}, uncaught=True)")


def assert_dead(cell: Cell, workers: set[int]) -> None:
    client, fault = cell.client, cell.outcome.fault
    kind, code = DEATHS.get(fault, ("exited", RAISED))
    assert client.process.wait(EVENT_S) == (-code if kind == "signalled" else code)
    cell.live.assert_gone()
    assert all(wait_exit(pid, 0) for pid in workers)
    cell.outcome.failed += len(cell.calls)


def assert_survived(cell: Cell, workers: set[int]) -> None:
    """A client that does not run is not dead, and what was answered meanwhile is there when it does."""
    client = cell.client
    if cell.outcome.fault == "SIGSTOP":
        assert os.waitpid(client.pid, os.WUNTRACED)[1] == (signal.SIGSTOP << 8) | 0x7F
    cell.release()
    if cell.outcome.fault == "SIGSTOP":
        client.kill(signal.SIGCONT)
    ends = cell.ends(EVENT_S)
    assert set(ends) == {{"before ready": True, "stopping": None}.get(cell.moment, "answered")}
    cell.assert_others_unharmed()
    assert client.ask("failures_so_far()") == []
    if cell.moment != "stopping":
        assert workers <= set(cell.live.census.take())
    assert client.finish() == 0


@pytest.mark.parametrize(("moment", "fault"), cells(first=3))
def test_a_fault_of_a_client(
    outcome: Outcome, live: Live, neighbours: Neighbours, moment: str, fault: str
) -> None:
    client = live.client(address=neighbours.address, stderr=subprocess.DEVNULL)
    with opened(live, client, outcome) as cell:
        cell.hold()
        cell.reach()
        if moment == "idle":
            cell.send("victim.ping.call_one()")
        workers = set(live.census.take()) - {client.pid}
        commit(client, fault)
        if fault in DEATHS or fault == "raise":
            assert_dead(cell, workers)
        else:
            assert_survived(cell, workers)
        live.assert_gone()
    neighbours.assert_untouched()
