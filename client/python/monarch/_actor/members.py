"""Which processes or actors a mesh consists of now: with a restart policy they change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from monarch._actor.readiness import Action, OnError, Readiness

if TYPE_CHECKING:
    from monarch._runtime import Proc

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
        self.follows_procs = False  # actors that come back with their processes
        self.watchers: list[Callable[[Change], None]] = []  # called on the supervisor's thread
        self._lock = threading.Lock()
        self._doubted: set[int] = set()
        self._lost: set[int] = set()

    def set_all(self, addresses: list[Any]) -> None:
        """Before the mesh is ready."""
        self.addresses[:] = addresses
        self.incarnations = [self.incarnation] * len(addresses)

    # --- by the supervisor, or as it told ---

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
        with self._lock:
            gates = {rank: self.down[rank] for rank in (*change.up, *change.lost) if rank in self.down}
        for rank, gate in gates.items():
            if rank in change.lost:
                gate.set_error(Lost(change.lost[rank]))
            else:
                gate.set_ready()
        self._open(gates)
        for watcher in list(self.watchers):
            watcher(change)

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

    # --- by those that use the mesh ---

    def doubt(self, event: dict[str, Any]) -> None:
        """Somebody's call met the end of that member. If that is true, its supervisor will say so within moments; what is
        sent meanwhile waits for that."""
        address = event["actor"]
        # A process's end is for the processes' policy, an actor's for its own.
        if not (self.supervised if event["kind"] == "exception" else self.follows_procs):
            return
        with self._lock:
            if address not in self.addresses:
                return
            rank = self.addresses.index(address)
            if rank in self.down or rank in self._lost:
                return
            gate = self.down[rank] = Readiness()
            self._doubted.add(rank)
            self.epoch += 1
        timer = threading.Timer(_DOUBT_S, self._end_doubt, (rank, gate))
        timer.daemon = True
        timer.start()

    def _end_doubt(self, rank: int, gate: Readiness) -> None:
        with self._lock:
            if rank not in self._doubted or self.down.get(rank) is not gate:
                return
            self._doubted.discard(rank)
        gate.set_ready()
        self._open({rank: gate})

    def when_up(self, ranks: Iterable[int], action: Action, on_error: OnError) -> None:
        """Runs the action once none of the ranks is being started again: now, or on the supervisor's thread."""
        ranks = list(ranks)
        for at, rank in enumerate(ranks):
            gate = self.down.get(rank)
            if gate is not None:
                # In its order behind what waits there; it is not looked at again.
                gate.post(partial(self.when_up, ranks[at + 1 :], action, on_error), on_error)
                return
        action()

    def procs(self) -> list[Proc]:
        return [address[:3] for address in self.addresses]
