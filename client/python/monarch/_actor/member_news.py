"""What becomes of members that are started again, told to processes that hold references to their mesh."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import threading
import weakref
from typing import TYPE_CHECKING, Any

from monarch import _runtime
from monarch._actor.answers import OWNER_DIED
from monarch._actor.members import Change, Members, Source, State

if TYPE_CHECKING:
    from monarch._runtime import Address, Inbox, Proc, Runtime

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
        with self._lock:
            self._holders = {one for one in self._holders if self._news.is_alive(one)}
            self._news.send([*self._holders], _CHANGE, self._source, change)


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

    def send(self, receivers: list[Address], kind: str, *what: Any) -> None:
        self._send(receivers, None, kind, *what)

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
            members.supervised = members.follows_procs = True
            members.doubt_all()
            self._watch(source.address)
            self.send([source.address], _FOLLOW, source.number, self.address)
            return members

    def _send(self, receivers: list[Address], call: Inbox | None, kind: str, *what: Any) -> None:
        targets = _runtime.Targets(receivers, range(len(receivers)))
        parts = [pickle.dumps((kind, what), 5)]
        # The session may be over.
        with contextlib.suppress(_runtime.StatusError):
            self._runtime.send(self.actor, _runtime.CALL, targets, _runtime.PICKLE, b"", parts, call)

    def _watch(self, owner: Address) -> None:
        if owner[:3] in self._owners:
            return
        self._owners.add(owner[:3])
        call = self._runtime.open_call(self.actor, 1)
        self._send([owner], call, _WATCH)
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
