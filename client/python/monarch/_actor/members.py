"""Which processes or actors a mesh consists of now: with a restart policy they change."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from monarch._actor.readiness import Action, OnError, Readiness

if TYPE_CHECKING:
    from monarch._runtime import Address, Proc

# How long a member that somebody saw fail may be kept from service until its supervisor has said what becomes of it.
_DOUBT_S = 1.0


class Lost(Exception):
    """A member will not be started again; `event` says why."""

    def __init__(self, event: dict[str, Any]) -> None:
        super().__init__(event.get("reason") or event.get("summary", "lost"))
        self.event = event


class Change(NamedTuple):
    """A step in the life of a mesh, as its supervisor tells it to those that hold references.

    Attributes:
        down: ranks that are out of service until a later change.
        up: ranks and who they are from now on.
        lost: ranks that will not come back, and the event of each.
        incarnation: the mesh's, after it.
    """

    down: list[int]
    up: dict[int, Any]
    lost: dict[int, dict[str, Any]]
    incarnation: int


class State(NamedTuple):
    """Where the life of a mesh has got to, for those that did not see the steps before.

    Attributes:
        addresses: of members, in rank order.
        incarnations: for each rank, the incarnation of the mesh in which it was started.
        incarnation: of the mesh.
        down: ranks that are being started again.
        lost: ranks that will not come back.
    """

    addresses: list[Any]
    incarnations: list[int]
    incarnation: int
    down: list[int]
    lost: list[int]


class Source(NamedTuple):
    """Who tells what becomes of a mesh: the actor of its owner's process that does, and its number for the mesh."""

    address: Address
    number: int


class Members:
    """Shared by a mesh, its slices and the references to it in one process. Thread-safe.

    Attributes:
        addresses: of actors or processes, in rank order, once the mesh is ready.
        incarnation: of the mesh: 1, and one more at each restart.
        incarnations: for each rank, the incarnation of the mesh in which it was started.
        epoch: another one after each change: what was made of the addresses before is out of date.
        down: of ranks that are being started again: what is sent to them waits there, in its order.
    """

    def __init__(self, addresses: list[Any]) -> None:
        self.addresses: list[Any] = addresses
        self.incarnation = 1
        self.incarnations: list[int] = [1] * len(addresses)
        self.epoch = 0
        self.down: dict[int, Readiness] = {}
        self.supervised = False  # by a restart policy of its own
        self.follows_procs = False  # comes back when its process does
        self.source: Source | None = None  # once references to it have been sent, if it is restarted
        self.watcher: Callable[[Change], None] | None = None  # called on the supervisor's thread
        self._lock = threading.Lock()
        self._doubted: set[int] = set()
        self._timers: list[threading.Timer] = []  # that end doubts
        self._lost: set[int] = set()

    def set_all(self, addresses: list[Any]) -> None:
        """Before the mesh is ready."""
        self.addresses[:] = addresses
        self.incarnations = [self.incarnation] * len(addresses)

    # --- by the supervisor, or as it told ---

    def follow_procs(self) -> None:
        """From now on."""
        self.follows_procs = True
        _following.add(self)

    def begin(self, change: Change) -> None:
        """The new addresses are known from now on; what waits still does until `complete`."""
        with self._lock:
            self._doubted -= {*change.down, *change.up, *change.lost}
            self._lost = (self._lost | {*change.lost}) - {*change.up}
            for rank in change.down:
                self.down.setdefault(rank, Readiness())
            for rank, address in change.up.items():
                self.addresses[rank] = address
                self.incarnations[rank] = change.incarnation
            self.incarnation = change.incarnation
            self.epoch += 1

    def complete(self, change: Change) -> None:
        if self.watcher is not None:
            self.watcher(change)
        with self._lock:
            gates = {rank: self.down[rank] for rank in (*change.up, *change.lost) if rank in self.down}
        for rank, gate in gates.items():
            if rank in change.lost:
                gate.set_error(Lost(change.lost[rank]))
            else:
                gate.set_ready()
        self._open(gates)

    def apply(self, change: Change) -> None:
        self.begin(change)
        self.complete(change)

    def lose_all_down(self, event: dict[str, Any]) -> None:
        self.apply(Change([], {}, dict.fromkeys(self.down, event), self.incarnation))

    def _open(self, gates: dict[int, Readiness]) -> None:
        with self._lock:
            for rank, gate in gates.items():
                if self.down.get(rank) is gate:
                    del self.down[rank]
            self.epoch += 1
            over = [] if self._doubted else self._timers
            self._timers = self._timers if self._doubted else []
        for timer in over:
            timer.cancel()

    # --- of references in other processes ---

    def __reduce__(self) -> Any:
        from monarch._actor.member_news import load_members
        from monarch._actor.process import process

        if self.source is None:
            if not (self.supervised or self.follows_procs):
                return (Members, (self.addresses,))
            process().member_news().announce(self)
        return (load_members, (self.source, self.state()))

    def state(self) -> State:
        with self._lock:
            return State(
                list(self.addresses), list(self.incarnations), self.incarnation, [*self.down], [*self._lost]
            )

    def set_state(self, state: State) -> None:
        """Ends all doubt, too."""
        with self._lock:
            self.addresses[:] = state.addresses
            self.incarnations = list(state.incarnations)
            self.incarnation = state.incarnation
            self._lost = {*state.lost}
            self._doubted.clear()
            gates = {rank: gate for rank, gate in self.down.items() if rank not in state.down}
            for rank in state.down:
                self.down.setdefault(rank, Readiness())
            self.epoch += 1
        for gate in gates.values():
            gate.set_ready()
        self._open(gates)

    def doubt_all(self) -> None:
        """They are as somebody knew them once: what is sent to them waits for their state."""
        self._begin_doubt(range(len(self.addresses)))

    # --- by those that use the mesh ---

    def doubt(self, event: dict[str, Any]) -> None:
        """Somebody's call met the end of that member. If that is true, its supervisor will say so within moments; what is
        sent meanwhile waits for that: if its process has ended, what is sent to all that was there."""
        address = event["actor"]
        # A process's end is for the processes' policy, an actor's for its own.
        if event["kind"] == "exception":
            if self.supervised:
                self._doubt_those_at(address)
            return
        for members in list(_following):
            if members.follows_procs:
                members._doubt_those_at(address[:3])

    def _doubt_those_at(self, address: Any) -> None:
        count = len(address)
        self._begin_doubt(
            [rank for rank, known in enumerate(list(self.addresses)) if known[:count] == address]
        )

    def _begin_doubt(self, ranks: Iterable[int]) -> None:
        with self._lock:
            gates = {rank: Readiness() for rank in ranks if rank not in self.down and rank not in self._lost}
            if not gates:
                return
            self.down.update(gates)
            self._doubted |= gates.keys()
            self.epoch += 1
            timer = threading.Timer(_DOUBT_S, self._end_doubt, (gates,))
            timer.daemon = True
            self._timers.append(timer)
            timer.start()

    def _end_doubt(self, gates: dict[int, Readiness]) -> None:
        with self._lock:
            gates = {
                rank: gate
                for rank, gate in gates.items()
                if rank in self._doubted and self.down.get(rank) is gate
            }
            self._doubted -= gates.keys()
        for gate in gates.values():
            gate.set_ready()
        self._open(gates)

    def when_up(self, ranks: Iterable[int], action: Action, on_error: OnError, size: int = 0) -> None:
        """Runs the action once none of the ranks is being started again: now, or on the supervisor's thread. `size`: as
        for Readiness.post."""
        ranks = list(ranks)
        for at, rank in enumerate(ranks):
            gate = self.down.get(rank)
            if gate is not None:
                # In its order behind what waits there; it is not looked at again.
                gate.post(partial(self.when_up, ranks[at + 1 :], action, on_error, size), on_error, size)
                return
        action()

    def procs(self) -> list[Proc]:
        return [address[:3] for address in self.addresses]


# All of this process that come back when their processes do, or once did.
_following: weakref.WeakSet[Members] = weakref.WeakSet()
