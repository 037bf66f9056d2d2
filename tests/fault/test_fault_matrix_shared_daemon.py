"""Each fault of a shared daemon at each moment of a call: nothing fails, what needs a daemon waits for the next one, and no
session is touched.

Run is a sample of the cells, each fault and each moment among them; `--full` runs all.
"""

from __future__ import annotations

import pytest
from census import GONE_S
from fault_cell import EVENT_S, Cell, opened
from live import Live
from matrix import DEATHS, Outcome, cells
from neighbours import Neighbours
from outside import commit_from_outside
from test_fault_matrix_daemon import NO_SUCH_CELL as NO_SUCH_CELL

TARGET = "shared daemon"
# What a daemon has to do then.
NEEDED = {"before ready": True, "stopping": None}


def assert_went_on(cell: Cell) -> None:
    cell.assert_others_unharmed()
    assert cell.client.ask("failures_so_far()") == []


@pytest.mark.parametrize(("moment", "fault"), cells(first=5))
def test_a_fault_of_a_shared_daemon(
    outcome: Outcome, live: Live, neighbours: Neighbours, moment: str, fault: str
) -> None:
    daemon = live.daemon()
    client = live.client(address=daemon.address)
    with opened(live, client, outcome) as cell:
        cell.hold()
        cell.reach()
        commit_from_outside(daemon.pid, fault)
        if fault in DEATHS:
            daemon.process.wait(EVENT_S)
        if moment == "idle":
            cell.send("victim.ping.call_one()")
        if moment != "before ready":
            cell.release()
        ends = [] if moment in NEEDED else cell.ends()
        assert_went_on(cell)
        if fault in DEATHS:
            daemon = live.daemon()
            if moment == "before ready":
                cell.await_held()  # What was starting is started anew.
        else:
            commit_from_outside(daemon.pid, "SIGCONT")
        cell.release()
        ends += cell.ends(EVENT_S)
        assert set(ends) == {NEEDED.get(moment, "answered")}, ends
        # It knows the session, and serves it.
        client.ask("(more, added) = start_victims(1)", 60)
        assert client.ask("added.ping.call().get(timeout=20).values()") == [0]
        assert_went_on(cell)
        assert client.finish() == 0
        live.census.wait_gone(GONE_S, but={daemon.pid})
        assert live.census.cgroups() == []
    neighbours.assert_untouched()
