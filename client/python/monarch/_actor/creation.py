"""Making the members of an actor mesh: at the spawn, and again when they are restarted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from monarch import _runtime
from monarch._actor import peer_semantics
from monarch._actor.members import Change
from monarch._actor.owned import stop_actor_s
from monarch._actor.restarter import StartFailed, climb
from monarch._actor.shape import Extent, Point

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from monarch._actor.actor_mesh import ActorMeshCore
    from monarch._actor.context import Instance
    from monarch._actor.proc_mesh_core import ProcMeshCore
    from monarch._actor.restarter import Restarter
    from monarch._actor.shape import Shape
    from monarch._runtime import Address, Inbox, Proc


class Creation:
    """What the members are made of: each time the same bytes, and what `describe` says of the place.

    Attributes:
        hung_after_ms: how long a handler of theirs may take until the owner is told of it; 0: as long as it likes.
        told: the actor that gets the members' failures.
        told_of_deaths: the actor of this process that gets those of their processes.
    """

    def __init__(
        self,
        owner: Instance,
        core: ActorMeshCore,
        shape: Shape,
        parts: list[Any],
        describe: Callable[[], Any],
        told: Instance | Restarter,
    ) -> None:
        self.owner = owner
        self.parts = parts
        self.told: Address = told.address
        self.told_of_deaths = owner.actor
        self.hung_after_ms = 0
        self._describe = describe
        self._core = core
        self._shape = shape

    def tell(self, addresses: list[Address]) -> None:
        """From now on deaths are told, and reports know the members."""
        core, shape = self._core, self._shape
        self.owner.runtime.add_owned_mesh(
            self.told_of_deaths,
            core.name,
            core.class_name,
            core.actor,
            [address[:3] for address in addresses],
            shape.labels,
            shape.ndslice.sizes,
            [address[3] for address in addresses],
        )

    def tell_no_more(self) -> None:
        self.owner.runtime.remove_owned_mesh(self.told_of_deaths, self._core.actor, self._core.name)

    def label_of(self, rank: int) -> str:
        extent = Extent(self._shape.labels, self._shape.ndslice.sizes)
        return repr(Point(rank, extent)) if self._shape.labels else ""

    def send(self, places: Mapping[int, Address], incarnation: int, answers: Inbox) -> None:
        """Asks for one member at each place, by rank; `answers` gets one from each, once it has a mailbox."""
        owner, core, shape = self.owner, self._core, self._shape
        parts = [self._describe(), *self.parts]
        meta = {
            "name": core.name,
            "class": core.class_name,
            "mesh": core.name,
            "labels": shape.labels,
            "sizes": shape.ndslice.sizes,
            "owner": list(self.told),
            "owner_label": owner.label,
            "only_if_sound": incarnation == 1 and peer_semantics.strict(),
            "incarnation": incarnation,
        }
        if self.hung_after_ms:
            meta["hung_after_ms"] = self.hung_after_ms
        for rank, address in places.items():
            meta["rank"] = rank
            meta["actor"] = address[3]
            targets = _runtime.Targets([(*address[:3], 0)], [rank])
            owner.runtime.send(
                owner.actor,
                _runtime.CREATE,
                targets,
                _runtime.PICKLE,
                _runtime.encode_value(meta),
                parts,
                answers,
            )


class RestartableActors:
    """The actors of a mesh, as their restarter sees them; and as that of their processes does."""

    is_procs = False

    def __init__(self, core: ActorMeshCore, creation: Creation, base: ProcMeshCore, ranks: list[int]) -> None:
        self.name = core.name
        self.members = core.members
        self.turns = core.turns
        self._core = core
        self._creation = creation
        self._runtime = creation.owner.runtime
        self._base = base
        self._at = {base_rank: rank for rank, base_rank in enumerate(ranks)}

    def is_stopped(self) -> bool:
        return self._core.stopped is not None

    def recognise(self, event: dict[str, Any]) -> dict[str, Any] | None:
        rank, who = event["rank"], event["actor"]
        if who is None or rank >= len(self.members.addresses):
            return None
        current = self.members.addresses[rank]
        # A process that died takes along whoever was there last.
        same = who == current or (who[:3] == current[:3] and self._is_dead(current[:3]))
        return event if same else None

    def is_beyond_restart(self, event: dict[str, Any]) -> bool:
        # An actor whose class cannot be loaded never was. A process that died is not started again for its actors.
        # Its owner is told of that, too.
        never_was = event["reason"].startswith("error spawning ")
        return never_was or self._is_dead(self.members.addresses[event["rank"]][:3])

    def _is_dead(self, proc: Proc) -> bool:
        return self._runtime.death_of(proc) is not None

    def end(self, ranks: list[int], reason: str) -> None:
        self._core.stop_members([self.members.addresses[rank] for rank in ranks], reason)(
            time.monotonic() + stop_actor_s()
        )

    def start(self, ranks: list[int], incarnation: int) -> Change:
        procs = {rank: self.members.addresses[rank][:3] for rank in ranks}
        actor = self._runtime.next_actor_id()
        alive = {rank: (*proc, actor) for rank, proc in procs.items() if not self._is_dead(proc)}
        failed = self._make(alive, incarnation)
        dead = [rank for rank, proc in procs.items() if self._is_dead(proc)]
        up = {rank: address for rank, address in alive.items() if rank not in failed and rank not in dead}
        errors = [event for rank, event in failed.items() if rank not in dead]
        if errors:
            self._core.stop_members(list(up.values()), "another member could not be restarted")(
                time.monotonic() + stop_actor_s()
            )
            raise StartFailed(errors[0])
        # Where processes are started again, the actors on them come with them.
        lost = {} if self._base.members.supervised else {rank: self._death(rank) for rank in dead}
        return Change([], up, lost, incarnation)

    def follow(self, change: Change) -> None:
        """The processes below have changed; theirs are new ones where they were started again."""
        members, at = self.members, self._at
        down = [at[rank] for rank in change.down if rank in at]
        lost = {
            at[rank]: self._of_process(at[rank], event) for rank, event in change.lost.items() if rank in at
        }
        places = {at[rank]: proc for rank, proc in change.up.items() if rank in at}
        if not down and not lost and not places:
            return
        with self.turns:
            if self._core.stopped is not None:
                return
            incarnation = members.incarnation + bool(places)
            up = self._make_on(places, incarnation)
            if lost:
                self._stand_alone()
            mine = Change(down, up, lost, incarnation)
            members.begin(mine)
            self.prepare(mine)
            members.complete(mine)

    def release(self, event: dict[str, Any]) -> None:
        """The processes are being stopped: what waits for a restart fails."""
        members = self.members
        members.follows_procs = False
        members.lose_all_down(event)

    def _make_on(self, procs: dict[int, Proc], incarnation: int) -> dict[int, Any]:
        """The new members; without those whose processes have died again, which are told by others."""
        if not procs:
            return {}
        actor = self._runtime.next_actor_id()
        places = {rank: (*proc, actor) for rank, proc in procs.items()}
        failed = self._make(places, incarnation)
        return {rank: address for rank, address in places.items() if rank not in failed}

    def _stand_alone(self) -> None:
        """The processes are not restarted any more."""
        self.members.follows_procs = False
        self._creation.tell_no_more()
        self._creation.told_of_deaths = self._creation.owner.actor
        self._creation.tell(self.members.addresses)

    def climb_with_process(self, rank: int, event: dict[str, Any]) -> Address | None:
        """Tells the owner of the end of the process of that rank of the processes; and who that is."""
        if rank not in self._at:
            return None
        climb(self._creation.owner, self._of_process(self._at[rank], event))
        return self._creation.owner.address

    def _make(self, places: dict[int, Any], incarnation: int) -> dict[int, dict[str, Any]]:
        """Creates them; the events of those that it failed for."""
        answers = self._runtime.open_call(self._creation.owner.actor, len(places))
        self._creation.send(places, incarnation, answers)
        failed = {}
        for _ in places:
            message = self._runtime.receive(answers, None)
            if message is not None and message.kind == _runtime.FAILURE:
                failed[message.rank] = message.event
        return failed

    def _death(self, rank: int) -> dict[str, Any]:
        return self._of_process(rank, self._runtime.death_of(self.members.addresses[rank][:3]) or {})

    def _of_process(self, rank: int, event: dict[str, Any]) -> dict[str, Any]:
        """What the end of its process means for that member."""
        core = self._core
        who = {"mesh": core.name, "rank": rank, "actor_class": core.class_name}
        return {
            **event,
            **who,
            "rank_label": self._creation.label_of(rank),
            "actor": self.members.addresses[rank],
        }

    def climb(self, event: dict[str, Any]) -> None:
        climb(self._creation.owner, event)

    def prepare(self, change: Change) -> None:
        # So that reports know the new members.
        if change.up:
            self._creation.tell_no_more()
            self._creation.tell(self.members.addresses)
