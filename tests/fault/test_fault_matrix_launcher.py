"""Each fault of a launcher at each moment of a call: its workers go with it, and the client gets typed errors for all that
it waits for, lives, and can spawn anew; the daemon and other sessions are not touched.

Run is a sample of the cells, each fault and each moment among them; `--full` runs all.
"""

from __future__ import annotations

import pytest
from census import GONE_S, wait_exit
from fault_cell import Cell, opened
from live import Client, Live, RemoteError
from matrix import DEATHS, Outcome, cells
from neighbours import Neighbours
from outside import can_exit, commit_from_outside

TARGET = "launcher"
NO_SUCH_CELL = {
    ("*", "throw"): "its own code throws nothing; an exception of a library ends it as SIGABRT does",
    ("*", "raise"): "it runs no Python",
    ("*", "ignore TERM"): "it runs no code of users that could ignore it, and takes TERM as the order to end",
}
if not can_exit():
    NO_SUCH_CELL |= dict.fromkeys((("*", "exit 0"), ("*", "exit 7")), "cannot be made on this processor")


def how_it_ended(cell: Cell) -> str:
    kind, code = DEATHS[cell.outcome.fault]
    return f"was killed by signal {code}" if kind == "signalled" else f"exited with status {code}"


def assert_failed(cell: Cell, end: object, launcher: int) -> None:
    """Its workers were killed with it."""
    assert isinstance(end, RemoteError), end
    assert end.is_a("SupervisionError"), end
    if cell.moment == "before ready":
        assert end.is_a("SpawnError"), end
        return
    assert (end.fields["kind"], end.fields["code"]) == ("signalled", 9), end.fields
    assert f"its launcher (pid {launcher}) {how_it_ended(cell)}" in end.fields["text"], end


def assert_told(client: Client, meshes: list[str]) -> None:
    """The owner is told of each mesh once; what had not started is no loss."""
    told = client.ask(f"failures({len(meshes)})")
    assert sorted({failure["mesh"] for failure in told}) == sorted(meshes), told
    assert {(failure["kind"], failure["code"]) for failure in told} == {("signalled", 9)}, told


def assert_dead(cell: Cell, launcher: int) -> None:
    client = cell.client
    assert wait_exit(launcher, GONE_S)
    stopping = cell.moment == "stopping"
    for end in cell.ends():
        # A call that is sent right behind the fault may meet workers that are still to be killed for it.
        if (cell.moment, end) not in (("stopping", None), ("idle", "answered")):
            assert_failed(cell, end, launcher)
    cell.live.census.wait_gone(GONE_S, but={client.pid})
    if cell.moment == "before ready":
        assert_told(client, ["victims"])
    elif not stopping:
        assert_told(client, ["victims", *cell.meshes])
    assert client.fails("unharmed.ping.call().get(timeout=10)").is_a("SupervisionError")
    # A new one is started for what comes next.
    assert len(client.start_victims(2)) == 2
    assert client.launcher() != launcher
    assert client.ask("victims.ping.call().get(timeout=10).values()") == [0, 1]


def assert_survived(cell: Cell, launcher: int) -> None:
    """A launcher that does not run costs calls nothing; what needs it waits."""
    needed = cell.moment in ("before ready", "stopping")
    cell.release()
    ends = [] if needed else cell.ends()
    assert cell.client.ask("failures_so_far()") == []
    commit_from_outside(launcher, "SIGCONT")
    ends += cell.ends()
    assert set(ends) == {{"before ready": True, "stopping": None}.get(cell.moment, "answered")}
    cell.assert_others_unharmed()
    assert cell.client.ask("failures_so_far()") == []


@pytest.mark.parametrize(("moment", "fault"), cells(first=2))
def test_a_fault_of_a_launcher(
    outcome: Outcome, live: Live, neighbours: Neighbours, moment: str, fault: str
) -> None:
    client = live.client(address=neighbours.address)
    with opened(live, client, outcome) as cell:
        cell.hold()
        cell.reach()
        launcher = client.launcher()
        commit_from_outside(launcher, fault)
        if moment == "idle":
            cell.send("victim.ping.call_one()")
        if fault in DEATHS:
            assert_dead(cell, launcher)
        else:
            assert_survived(cell, launcher)
        assert client.finish() == 0
        live.assert_gone()
    neighbours.assert_untouched()
