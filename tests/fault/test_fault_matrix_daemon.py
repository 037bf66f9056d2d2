"""Each fault of a daemon at each moment of a call: its sessions end with it, their clients live and get typed errors for all
that they wait for and for what they ask later; a session under another daemon is not touched.

Run is a sample of the cells, each fault and each moment among them; `--full` runs all.
"""

from __future__ import annotations

import pytest
from census import GONE_S, wait_exit
from fault_cell import CALL_S, Cell, opened
from live import Live, RemoteError
from matrix import DEATHS, Outcome, cells
from neighbours import Neighbours
from outside import can_exit, commit_from_outside

TARGET = "daemon"
NO_SUCH_CELL = {
    ("*", "throw"): "its own code throws nothing; an exception of a library ends it as SIGABRT does",
    ("*", "raise"): "it runs no Python",
    ("*", "ignore TERM"): "it runs no code of users that could ignore it, and takes TERM as the order to end",
}
if not can_exit():
    NO_SUCH_CELL |= dict.fromkeys((("*", "exit 0"), ("*", "exit 7")), "cannot be made on this processor")


def assert_dead(cell: Cell, daemon: int) -> None:
    client = cell.client
    for end in cell.ends():
        if (cell.moment, end) in (("stopping", None), ("idle", "answered")):
            continue  # It was done, or the call was sent, before the workers had ended.
        assert isinstance(end, RemoteError), end
        assert end.is_a("SupervisionError"), end
        if cell.moment == "before ready":
            assert end.is_a("SpawnError"), end
        else:
            assert end.fields["kind"] == "unreachable", end.fields
    assert wait_exit(daemon, GONE_S)
    cell.live.census.wait_gone(GONE_S, but={client.pid})
    assert cell.live.census.cgroups() == []
    told = client.ask("failures(1)")
    assert {failure["kind"] for failure in told} == {"unreachable"}, told
    assert client.fails("unharmed.ping.call().get(timeout=10)", CALL_S).fields["kind"] == "unreachable"
    # What would need a daemon says so within its limit.
    refused = client.fails("this_host().spawn_procs({'gpus': 1}).initialized.get(timeout=20)", CALL_S)
    assert refused.is_a("SupervisionError"), refused


def assert_survived(cell: Cell, daemon: int) -> None:
    """A daemon that does not run costs calls between actors nothing; what needs it waits."""
    needed = cell.moment in ("before ready", "stopping")
    cell.release()
    ends = [] if needed else cell.ends()
    assert cell.client.ask("failures_so_far()") == []
    commit_from_outside(daemon, "SIGCONT")
    ends += cell.ends()
    assert set(ends) == {{"before ready": True, "stopping": None}.get(cell.moment, "answered")}
    cell.assert_others_unharmed()
    assert cell.client.ask("failures_so_far()") == []


@pytest.mark.parametrize(("moment", "fault"), cells(first=4))
def test_a_fault_of_a_daemon(
    outcome: Outcome, live: Live, neighbours: Neighbours, moment: str, fault: str
) -> None:
    client = live.client()
    with opened(live, client, outcome) as cell:
        cell.hold()
        cell.reach()
        daemon = client.daemon()
        commit_from_outside(daemon, fault)
        if moment == "idle":
            cell.send("victim.ping.call_one()")
        if fault in DEATHS:
            assert_dead(cell, daemon)
        else:
            assert_survived(cell, daemon)
        assert client.finish() == 0
        # The directory of a daemon that was killed is removed by the next one.
        live.run_dir_stays = fault in DEATHS
        live.assert_gone()
        if live.run_dir_stays:
            (left,) = live.run_dirs()
            other = live.client()
            other.start_victims(1)
            assert left not in live.run_dirs()
            assert other.finish() == 0
            live.run_dir_stays = False
            live.assert_gone()
    neighbours.assert_untouched()
