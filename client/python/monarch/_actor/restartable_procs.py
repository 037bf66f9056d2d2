"""The processes of a mesh with a restart policy, and the actors that come back with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from monarch._actor.members import Change
from monarch._actor.restarter import StartFailed, climb
from monarch._actor.setup_actor import set_up_again
from monarch._actor.shape import Point

if TYPE_CHECKING:
    from monarch._actor.creation import RestartableActors
    from monarch._actor.proc_mesh import ProcMesh
    from monarch._actor.setup_actor import Setup
    from monarch._runtime import Proc


class Launch(NamedTuple):
    """What processes are started with, each time the same.

    Attributes:
        specs: one for all, or one for each rank.
        hosts: of each rank; none: this process's.
    """

    specs: list[dict[str, Any]]
    hosts: list[bytes]
    phase_ms: int
    functions: list[Setup]

    def of(self, ranks: list[int]) -> tuple[list[dict[str, Any]], list[bytes]]:
        specs = self.specs if len(self.specs) == 1 else [self.specs[rank] for rank in ranks]
        return specs, [self.hosts[rank] for rank in ranks] if self.hosts else []


class RestartableProcs:
    """As their restarter sees them."""

    is_procs = True

    def __init__(self, mesh: ProcMesh, launch: Launch) -> None:
        core = mesh._core
        self.name = core.name
        self.members = core.members
        self.turns = core.turns
        self.actors: list[RestartableActors] = []  # that were spawned on them, in that order
        self._core = core
        self._mesh = mesh
        self._launch = launch

    def recognise(self, event: dict[str, Any]) -> dict[str, Any] | None:
        # It may tell of an actor there.
        proc = event["actor"][:3]
        if proc not in self.members.addresses:
            return None
        return {**event, **self._who(self.members.addresses.index(proc))}

    def _who(self, rank: int) -> dict[str, Any]:
        label = repr(Point(rank, self._mesh.extent)) if self._mesh._labels else ""
        who = (*self.members.addresses[rank], 0)
        return {"mesh": self.name, "rank": rank, "rank_label": label, "actor_class": "", "actor": who}

    def is_beyond_restart(self, event: dict[str, Any]) -> bool:
        return False

    def end(self, ranks: list[int], reason: str) -> None:
        self._core.stop_procs([self.members.addresses[rank] for rank in ranks], reason)

    def start(self, ranks: list[int], incarnation: int) -> Change:
        from monarch._actor.process import process

        core, owner, shape = self._core, self._core.owner, self._mesh._shape
        assert owner is not None and core.restarter is not None
        specs, hosts = self._launch.of(ranks)
        try:
            spawned = (
                process()
                .control()
                .spawn_procs(
                    core.name,
                    shape.labels,
                    shape.ndslice.sizes,
                    specs,
                    owner.address,
                    self._launch.phase_ms,
                    hosts,
                    ranks,
                    incarnation,
                )
            )
        except Exception as error:
            failures = getattr(error, "failures", None)
            event = failures[0] if failures else self._event(ranks[0], error)
            raise StartFailed({**event, "actor": (*self.members.addresses[event["rank"]], 0)}) from error
        procs: list[Proc] = [address for address, _ in spawned]
        if core.output is not None:
            core.output.add_procs(dict(zip(ranks, procs, strict=True)))
        if self._launch.functions:
            try:
                set_up_again(
                    owner,
                    self._mesh,
                    self._launch.functions,
                    dict(zip(ranks, procs, strict=True)),
                    core.restarter,
                )
            except Exception as error:
                core.stop_procs(procs, "bootstrap failed")
                raise StartFailed(self._event(ranks[0], error)) from error
        for rank, (_, pid) in zip(ranks, spawned, strict=True):
            core.pids[rank] = pid
        return Change([], dict(zip(ranks, procs, strict=True)), {}, incarnation)

    def _event(self, rank: int, error: Exception) -> dict[str, Any]:
        return {"kind": "start_failed", "reason": str(error), **self._who(rank)}

    def prepare(self, change: Change) -> None:
        if change.up:
            self._core.tell_no_more()
            self._core.tell()
        self.actors = [actors for actors in self.actors if not actors.is_stopped()]
        for actors in self.actors:
            actors.follow(change)

    def climb(self, event: dict[str, Any]) -> None:
        """To the owners of the actors there; if the processes' own owner is none of them, to that as well."""
        owner = self._core.owner
        assert owner is not None
        rank = event["rank"]
        told = [actors.climb_with_process(rank, event) for actors in self.actors if not actors.is_stopped()]
        if owner.address not in told:
            climb(owner, event)
