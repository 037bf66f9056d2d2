"""Supervises one mesh with a restart policy, in its owner's process, so that the owner need not be free for it."""

from __future__ import annotations

import contextlib
import queue
import random
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Protocol

from monarch import _runtime
from monarch._actor.context import Context, current
from monarch._actor.failure import RESTARTS_GIVEN_UP, FailureEvent
from monarch._actor.members import Change, Members
from monarch._actor.restart_policy import Restart, RestartEvent, RestartMachine
from monarch._actor.stderr import say
from monarch._actor.turns import Turns

if TYPE_CHECKING:
    from monarch._actor.context import Instance
    from monarch._runtime import Address, Message


class StartFailed(Exception):
    """A restart came to nothing; `event` says why."""

    def __init__(self, event: dict[str, Any]) -> None:
        super().__init__(event.get("reason", ""))
        self.event = event


class Supervised(Protocol):
    """A mesh, as far as its restarter needs it. The methods run on the restarter's thread and may block."""

    name: str
    is_procs: bool
    members: Members
    turns: Turns

    # The end of a member of the present incarnation, of which the event tells; None: of none.
    def recognise(self, event: dict[str, Any]) -> dict[str, Any] | None: ...
    # Whether the failure of that member is another's to deal with, or nobody's.
    def is_beyond_restart(self, event: dict[str, Any]) -> bool: ...
    # Ends members that live, because another one failed; returns when they are gone.
    def end(self, ranks: list[int], reason: str) -> None: ...
    # Makes the ranks anew. Those that are left out stay down, or are told to be lost. Raises StartFailed.
    def start(self, ranks: list[int], incarnation: int) -> Change: ...
    # What is to be done while the addresses are the new ones, and what waits for them still does.
    def prepare(self, change: Change) -> None: ...
    # Tells the owner of a failure, as without a policy.
    def climb(self, event: dict[str, Any]) -> None: ...


def climb(owner: Instance, event: dict[str, Any]) -> None:
    """Tells an owner in this process of the end of something that it owns."""
    runtime = owner.runtime
    target = _runtime.Targets([owner.address], [event["rank"]])
    payload = _runtime.encode_event(event)
    with contextlib.suppress(_runtime.StatusError):  # It may have ended.
        runtime.send(owner.actor, _runtime.ACTOR_FAILED, target, _runtime.NONE, payload, [], None)


class Restarter:
    """A hidden actor: it gets the failures of the mesh's members in the owner's place, and passes on what it gives up.

    Thread-safe; all that is decided is decided on its own thread.
    """

    def __init__(self, owner: Instance, policy: Restart, name: str) -> None:
        self._owner = owner
        self._policy = policy
        self._runtime = owner.runtime
        self.actor = self._runtime.next_actor_id()
        self.address: Address = (*self._runtime.self_proc, self.actor)
        self._mailbox = self._runtime.add_actor(
            self.actor, f"{name}.restarts", "monarch.Restarter", owner.address
        )
        self._causes: dict[int, dict[str, Any]] = {}  # by rank, of those that are down
        self._over = self._started = False
        self._restarts = 0
        self._callbacks: queue.SimpleQueue[RestartEvent | None] = queue.SimpleQueue()

    def start(self, mesh: Supervised, size: int) -> None:
        """From now on. `size`: of the mesh as spawned."""
        self._mesh = mesh
        self._machine = RestartMachine(self._policy, size)
        self._started = mesh.members.supervised = True
        self._show(None)
        threading.Thread(target=self._run, name=f"monarch-restarts-{mesh.name}", daemon=True).start()
        if self._policy.on_restart is not None:
            threading.Thread(target=self._call_back, name="monarch-on-restart", daemon=True).start()

    def quit(self) -> None:
        """The mesh is being stopped: nothing starts any more."""
        self._over = True
        if not self._started:
            self._end()
            return
        target = _runtime.Targets([self.address], [0])
        with contextlib.suppress(_runtime.StatusError):  # The session may be over.
            self._runtime.send(self.actor, _runtime.STOP_ACTOR, target, _runtime.NONE, b"", [], None)

    # --- its thread ---

    def _run(self) -> None:
        runtime = self._runtime
        current.set(Context(self._owner))
        runtime.bind_actor(self.actor)
        with contextlib.suppress(_runtime.StatusError):  # The session is over, and the mesh with it.
            while not self._over:
                due = self._machine.due
                message = runtime.receive(
                    self._mailbox, None if due is None else max(0.0, due - time.monotonic())
                )
                if message is None and self._mailbox.finished():
                    break
                if message is not None and message.kind == _runtime.ACTOR_FAILED:
                    self._take(message)
                ranks = self._machine.start_due(time.monotonic())
                if ranks and not self._over:
                    self._start(ranks)
            self._end()
        self._callbacks.put(None)

    def _end(self) -> None:
        self._runtime.end_actor(self.actor, {"kind": "stopped", "reason": "its mesh was stopped"})

    def _take(self, message: Message) -> None:
        event = self._mesh.recognise(message.event)
        if event is None:
            return  # Of an incarnation that is gone.
        rank: int = event["rank"]
        members = self._mesh.members
        if self._machine.given_up or self._mesh.is_beyond_restart(event):
            self._mesh.climb(event)
            self._apply(Change([], {}, {rank: event}, members.incarnation))
            return
        with self._mesh.turns:
            down = self._machine.failed(rank, time.monotonic(), random.random())
            if self._machine.given_up:
                self._give_up({rank: event}, event)
            elif down and not self._over:
                self._take_down(rank, down, event)

    def _apply(self, change: Change) -> None:
        self._mesh.members.begin(change)
        self._mesh.prepare(change)
        self._mesh.members.complete(change)

    def _take_down(self, rank: int, down: list[int], event: dict[str, Any]) -> None:
        members = self._mesh.members
        self._causes.update(dict.fromkeys(down, event))
        change = Change(down, {}, {}, members.incarnation)
        self._apply(change)
        others = down[1:]
        if others:
            self._mesh.end(others, f"restarted because rank {rank} failed")

    def _start(self, ranks: list[int]) -> None:
        mesh, members = self._mesh, self._mesh.members
        with mesh.turns:
            # What came up meanwhile by other means is not started twice.
            ranks = [rank for rank in ranks if rank in members.down]
            causes = {rank: self._causes.pop(rank) for rank in ranks if rank in self._causes}
            try:
                change = mesh.start(ranks, members.incarnation + 1)
            except StartFailed as error:
                self._machine.start_failed(time.monotonic(), random.random())
                self._causes.update(causes)
                if self._machine.given_up:
                    self._give_up(causes, error.event)
                return
            self._machine.started()
            self._apply(change)
            if change.up:
                self._restarts += 1
                self._show(next(iter(causes.values()), None))
        if change.up and causes:
            cause = FailureEvent(next(iter(causes.values())))
            self._callbacks.put(RestartEvent(mesh.name, tuple(sorted(change.up)), cause, change.incarnation))

    def _give_up(self, failed: dict[int, dict[str, Any]], event: dict[str, Any]) -> None:
        """The failure climbs, as without a policy."""
        policy, members = self._policy, self._mesh.members
        why = f"{RESTARTS_GIVEN_UP}more than {policy.max_restarts} within {policy.within_s:g} s)"
        told = {**event, "reason": f"{event['reason']} {why}".strip()}
        if event.get("traceback"):
            told["traceback"] = f"{event['traceback'].rstrip()}\n{why}"
        members.supervised = False
        self._show(event)
        self._mesh.climb(told)
        self._apply(Change([], {}, dict.fromkeys({*members.down, *failed}, told), members.incarnation))

    def _show(self, cause: dict[str, Any] | None) -> None:
        """To `monarchctl tree`."""
        shown = {
            "mesh": self._mesh.name,
            "of_procs": self._mesh.is_procs,
            "policy": str(self._policy),
            "incarnation": self._mesh.members.incarnation,
            "restarts": self._restarts,
            "given_up": self._machine.given_up,
            "cause": cause,
        }
        self._runtime.show_restarts(self.actor, shown)

    def _call_back(self) -> None:
        on_restart = self._policy.on_restart
        assert on_restart is not None
        current.set(Context(self._owner))
        while (event := self._callbacks.get()) is not None:
            try:
                on_restart(event)
            except Exception:
                say(f"on_restart of mesh {event.mesh} raised:\n{traceback.format_exc()}")
