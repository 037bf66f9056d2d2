"""What becomes of members that are started again, told to processes that hold references to their mesh."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from monarch import _runtime
from monarch._actor.answers import OWNER_DIED
from monarch._actor.members import Change, Members, Source, State

if TYPE_CHECKING:
    from monarch._runtime import Address, Inbox, Proc, Runtime

# How long a supervisor waits for holders to know the new members. They are slower only if their process is stopped or
# starved, and hear of it all the same.
_KNOWN_S = 1.0

# What is sent between processes: one of these, and what its handler takes.
_FOLLOW, _LEAVE, _STATE, _CHANGE, _WATCH = "follow", "leave", "state", "change", "watch"


class _Holders:
    """Those that follow one mesh. Its members' watcher. Thread-safe.

    A change that is under way when somebody comes may be told twice, in the state and after it, which does no harm.
    """

    def __init__(self, news: MemberNews, source: Source) -> None:
        self._news = news
        self._source = source
        self._lock = threading.Lock()  # also for the order of what is sent
        self._holders: set[Address] = set()

    def add(self, holder: Address, members: Members) -> None:
        with self._lock:
            self._holders.add(holder)
            self._news.send([holder], _STATE, self._source, members.state())

    def discard(self, holder: Address) -> None:
        with self._lock:
            self._holders.discard(holder)

    def __call__(self, change: Change) -> None:
        """When it returns, others know the new members: whoever learns of them here may ask another to call them."""
        with self._lock:
            self._holders = {one for one in self._holders if self._news.is_alive(one)}
            if self._holders:
                answers = self._news.send([*self._holders], _CHANGE, self._source, change)
                if change.up:
                    self._news.wait(answers, len(self._holders), time.monotonic() + _KNOWN_S)


class MemberNews:
    """This process's part: a hidden actor and its thread. It tells of the meshes that are supervised here, and hears of
    those that references here are to. Thread-safe.

    A reference's members are in doubt until the owner's process has said how they are, so that a reference that
    was pickled before a restart finds the new ones. The owner's end is heard by a call that is never answered.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.actor = runtime.next_actor_id()
        self.address: Address = (*runtime.self_proc, self.actor)
        self._mailbox = runtime.add_actor(self.actor, "member_news", "monarch.MemberNews", self.address)
        self._lock = threading.RLock()  # References may be loaded while one is.
        self._numbers = itertools.count(1)
        self._told: weakref.WeakValueDictionary[int, Members] = weakref.WeakValueDictionary()
        self._followed: weakref.WeakValueDictionary[Source, Members] = weakref.WeakValueDictionary()
        self._owners: set[Proc] = set()  # of what is followed, that live
        threading.Thread(target=self._run, name="monarch-member-news", daemon=True).start()

    def send(self, receivers: list[Address], kind: str, *what: Any) -> Inbox:
        """Gives what gets an answer from each: all that is sent is answered when it is done."""
        targets = _runtime.Targets(receivers, range(len(receivers)))
        answers = self._runtime.open_call(self.actor, len(receivers))
        # The session may be over.
        with contextlib.suppress(_runtime.StatusError):
            parts = [pickle.dumps((kind, what), 5)]
            self._runtime.send(self.actor, _runtime.CALL, targets, _runtime.PICKLE, b"", parts, answers)
        return answers

    def wait(self, answers: Inbox, count: int, deadline: float) -> None:
        for _ in range(count):
            if self._runtime.receive(answers, max(0.0, deadline - time.monotonic())) is None:
                return

    def is_alive(self, actor: Address) -> bool:
        return self._runtime.death_of(actor[:3]) is None

    def announce(self, members: Members) -> Source:
        """Who tells of them, now that references to them leave this process."""
        with self._lock:
            if members.source is None:
                members.source = Source(self.address, next(self._numbers))
                members.watcher = _Holders(self, members.source)
                self._told[members.source.number] = members
            return members.source

    def follow(self, source: Source, state: State) -> Members:
        """The members of a mesh that is supervised elsewhere, or here, as a reference to it knew them."""
        with self._lock:
            known = (
                self._told.get(source.number)
                if source.address == self.address
                else self._followed.get(source)
            )
            if known is not None:
                return known
            members = Members([])
            members.set_state(state._replace(down=[]))
            members.source = source
            if source.address == self.address or not self.is_alive(source.address):
                return members
            self._followed[source] = members
            members.supervised = True
            members.follow_procs()
            members.doubt_all()
            self._watch(source.address)
            self.send([source.address], _FOLLOW, source.number, self.address)
            return members

    def _watch(self, owner: Address) -> None:
        if owner[:3] in self._owners:
            return
        self._owners.add(owner[:3])
        call = self.send([owner], _WATCH)
        threading.Thread(
            target=self._await_end, args=(owner[:3], call), name="monarch-owner-watch", daemon=True
        ).start()

    def _await_end(self, owner: Proc, call: Inbox) -> None:
        with contextlib.suppress(_runtime.StatusError):  # The session is over.
            self._runtime.receive(call, None)
            with self._lock:
                self._owners.discard(owner)
                orphans = [
                    members for source, members in self._followed.items() if source.address[:3] == owner
                ]
            for members in orphans:
                members.supervised = members.follows_procs = False
                members.lose_all_down({"kind": "stopped", "reason": OWNER_DIED})

    # --- the actor ---

    def _run(self) -> None:
        self._runtime.bind_actor(self.actor)
        with contextlib.suppress(_runtime.StatusError):  # The session is over.
            while (message := self._runtime.receive(self._mailbox, None)) is not None:
                if message.kind == _runtime.CALL:
                    kind, what = pickle.loads(message.parts[0])
                    self._take(kind, what)
                    if kind != _WATCH:
                        self._runtime.reply(message, _runtime.REPLY, _runtime.NONE, b"", [])

    def _take(self, kind: str, what: Any) -> None:
        if kind in (_FOLLOW, _LEAVE):
            number, holder = what
            told = self._told.get(number)
            if told is not None:
                assert isinstance(told.watcher, _Holders)
                if kind == _FOLLOW:
                    told.watcher.add(holder, told)
                else:
                    told.watcher.discard(holder)
        elif kind in (_STATE, _CHANGE):
            source, news = what
            members = self._followed.get(source)
            if members is None:  # No reference is left here.
                self.send([source.address], _LEAVE, source.number, self.address)
            elif kind == _STATE:
                members.set_state(news)
            else:
                members.apply(news)


def load_members(source: Source, state: State) -> Members:
    """What Members.__reduce__ names."""
    from monarch._actor import process

    if process.exists():
        return process.process().member_news().follow(source, state)
    return Members(state.addresses)
