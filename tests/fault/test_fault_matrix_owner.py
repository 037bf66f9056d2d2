"""Each fault of a process in which an actor owns a process and actors: what it owned goes along, and nothing else does.

Run is a sample of the cells, each fault and each moment among them; `--full` runs all.
"""

from __future__ import annotations

import pytest
from census import GONE_S
from fault_cell import EVENT_S, Cell, opened
from live import Live, RemoteError
from matrix import DEATHS, Outcome, cells
from neighbours import Neighbours

TARGET = "owner's process"
NO_SUCH_CELL = {
    ("before ready", "*"): "a process that is not ready has no actor that could own",
    ("idle", "raise"): "no handler runs that could raise",
    ("queued call", "raise"): "a call in the queue runs no code yet that could raise",
}
# On a process of the owner, on one of the client.
BELONGINGS = ("owned", "guest")


class OwnerCell:
    """Two owners; the victim is that of rank 1."""

    def __init__(self, cell: Cell) -> None:
        self.cell, self.client = cell, cell.client
        self.fault, self.moment = cell.outcome.fault, cell.moment
        self.dies = self.fault in DEATHS and self.moment != "stopping"
        self.own_calls = 0
        cell.after_start = self.look_at_belongings

    def belongings(self, names: str, member: str) -> None:
        self.client.ask(f"({names}) = {member}.belongings.call_one().get(timeout={EVENT_S})")

    def look_at_belongings(self) -> None:
        """Unless it is stopped anyway, a call is under way in each of what the victim owns."""
        self.belongings("owned0, guest0, pid0", "faulty.slice(gpus=0)")
        self.belongings("owned, guest, pid1", "victim")
        if self.moment != "stopping":
            for mesh in BELONGINGS:
                self.cell.hold_call(mesh, mesh)
                self.own_calls += 1

    def assert_ends(self) -> None:
        ends = self.cell.ends(EVENT_S if self.moment == "stopping" else 5)
        of_belongings, of_victim = ends[: self.own_calls], ends[self.own_calls :]
        if self.dies:
            for end in of_belongings:
                self.assert_ownerless(end)
            for end in of_victim:
                assert isinstance(end, RemoteError), end
                assert (end.fields["kind"], end.fields["code"]) == DEATHS[self.fault], end
            return
        assert of_belongings == ["answered"] * self.own_calls
        if self.moment == "stopping":
            assert of_victim == [None]
        elif self.fault == "raise":
            (end,) = of_victim
            assert isinstance(end, RemoteError), end
            assert "ValueError: raised on purpose" in end.fields["text"]
        else:
            assert set(of_victim) == {"answered"}

    def assert_ownerless(self, end: object) -> None:
        assert isinstance(end, RemoteError), end
        assert end.is_a("SupervisionError"), end
        assert "timed out reaching controller" in end.fields["text"], end

    def assert_told(self) -> None:
        """The root hears of the owner, once for each of its meshes, and not of what that owned."""
        raised = self.fault == "raise" and self.moment in ("in __init__", "stopping")
        failed = self.dies and self.fault != "exit 0"
        expected = sorted(self.cell.meshes) if failed else [self.cell.meshes[-1]] if raised else []
        told = self.client.ask(f"failures({len(expected)})")
        assert sorted(failure["mesh"] for failure in told) == expected, told
        for failure in told:
            kind_and_code = DEATHS[self.fault] if failed else ("exception", 0)
            assert (failure["kind"], failure["code"]) == kind_and_code, failure

    def assert_belongings_gone(self, before: set[int]) -> None:
        """Of processes, there are those from before the owners, and those of the owners that live."""
        if self.moment == "stopping":
            self.cell.live.census.wait_gone(GONE_S, but=before)
            for mesh in BELONGINGS:
                assert self.client.fails(f"{mesh}.ping.call_one().get(timeout=10)").is_a("SupervisionError")
            return
        pids = set(self.client.ask("procs.slice(gpus=0).pids()")) | {self.client.ask("pid0")}
        if self.moment == "in __init__":
            self.belongings("owned2, guest2, pid2", "broken.slice(gpus=0)")
            pids.add(self.client.ask("pid2"))
        if not self.dies:
            pids |= set(self.client.ask("procs.pids()")) | {self.client.ask("pid1")}
        if not self.dies and self.fault != "raise" and self.moment == "in __init__":
            self.belongings("owned3, guest3, pid3", "victim")
            pids.add(self.client.ask("pid3"))
        self.cell.live.census.wait_gone(GONE_S, but=before | pids)
        assert pids <= set(self.cell.live.census.take())
        for mesh in BELONGINGS:
            assert self.client.ask(f"{mesh}0.ping.call_one().get(timeout=10)") == "answered"
            if not self.dies:
                assert self.client.ask(f"{mesh}.ping.call_one().get(timeout=10)") == "answered"
            else:
                self.assert_ownerless(self.client.fails(f"{mesh}.ping.call_one().get(timeout=10)"))


@pytest.mark.parametrize(("moment", "fault"), cells(first=1))
def test_a_fault_of_an_owner(
    outcome: Outcome, live: Live, neighbours: Neighbours, moment: str, fault: str
) -> None:
    client = live.client(address=neighbours.address)
    with opened(live, client, outcome, owning=True) as cell:
        before = set(live.census.take())
        owner = OwnerCell(cell)
        cell.reach()
        if fault == "SIGSTOP":
            cell.continue_when_stopped()
        if not owner.dies:
            cell.release()
        owner.assert_ends()
        owner.assert_told()
        owner.assert_belongings_gone(before)
        cell.assert_others_unharmed()
        assert client.finish() == 0
        live.assert_gone()
    neighbours.assert_untouched()
