"""Hands the messages of an inbox to the futures that wait for them, in threads and in event loops."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from monarch._actor.interrupt import acquire_interruptibly

if TYPE_CHECKING:
    import asyncio

    from monarch._runtime import Inbox, Message, Notifier, Runtime


class Consumer(Protocol):
    """Takes messages until it has enough."""

    def is_settled(self) -> bool: ...

    # None: no more messages will come.
    def feed(self, message: Message | None) -> None: ...


class LoopBridge:
    """Wakes an event loop when an inbox has news. Confined to the loop's thread, except for its making."""

    def __init__(self, runtime: Runtime, notifier: Notifier) -> None:
        self.notifier = notifier
        self._runtime = runtime
        self._receivers: dict[int, Any] = {}
        self._next_cookie = 1

    def add(self, on_news: Any) -> int:
        cookie = self._next_cookie
        self._next_cookie += 1
        self._receivers[cookie] = on_news
        return cookie

    def remove(self, cookie: int) -> None:
        self._receivers.pop(cookie, None)

    def dispatch(self) -> None:
        for cookie in self.notifier.take():
            on_news = self._receivers.get(cookie)
            if on_news is not None:
                on_news()


class ForeignLoopBridge(LoopBridge):
    """For a loop that is not ours: the news come through a file descriptor, by the runtime's service thread."""

    def __init__(self, runtime: Runtime, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(runtime, runtime.make_notifier())
        loop.add_reader(self.notifier.event_fd(), self.dispatch)

    def add(self, on_news: Any) -> int:
        if not self._receivers:
            self._runtime.add_bell_waiter()
        return super().add(on_news)

    def remove(self, cookie: int) -> None:
        had = bool(self._receivers)
        super().remove(cookie)
        if had and not self._receivers:
            self._runtime.remove_bell_waiter()

    def __del__(self) -> None:
        if self._receivers:
            self._runtime.remove_bell_waiter()


_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopBridge] = weakref.WeakKeyDictionary()


def bridge_for(runtime: Runtime, loop: asyncio.AbstractEventLoop) -> LoopBridge:
    """The bridge of the running loop."""
    bridge = _bridges.get(loop)
    if bridge is None:
        bridge = _bridges[loop] = ForeignLoopBridge(runtime, loop)
    return bridge


def register_bridge(loop: asyncio.AbstractEventLoop, bridge: LoopBridge) -> None:
    _bridges[loop] = bridge


class Receiver:
    """One inbox and those who wait for its messages: whoever waits first gets the first. Thread-safe.

    A thread that reads holds the lock. News go to an event loop only while no thread reads, for they wake one of the
    two; so the thread hands over to the waiting loops when it is through.
    """

    __slots__ = ("_armed_at", "_bridge", "_cookie", "_lock", "_waiters", "inbox", "runtime", "single")

    def __init__(self, runtime: Runtime, inbox: Inbox) -> None:
        self.runtime = runtime
        self.inbox = inbox
        self.single = True  # all messages are for one consumer
        self._lock = threading.Lock()
        self._waiters: deque[Consumer] | None = None
        self._bridge: LoopBridge | None = None  # of the loop that waits, the last one if there are several
        self._armed_at: LoopBridge  # the one the news go to, while there is a cookie
        self._cookie: int | None = None

    def read_for(self, consumer: Consumer, timeout: float | None) -> None:
        """Reads until the consumer is done or the time is over."""
        deadline = None if timeout is None else time.monotonic() + timeout
        # At first without keyword arguments, which cost more than the lock.
        free = self._lock.acquire(False)
        if not free and not acquire_interruptibly(self._lock, deadline):
            return
        try:
            if self._cookie is not None:
                self._disarm()
            while not consumer.is_settled():
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                message = self.runtime.receive(self.inbox, left)
                if message is None and not self.inbox.finished():
                    return
                consumer.feed(message)
        finally:
            self._lock.release()
            if self._waiters:
                self._arm()

    def add_waiter(self, consumer: Consumer, loop: asyncio.AbstractEventLoop) -> None:
        """The consumer gets its messages from the running loop, in turn with others."""
        waiters = self._waiters
        if waiters is None:
            waiters = self._waiters = deque()
        before = self._bridge
        self._bridge = bridge_for(self.runtime, loop)
        if waiters and before is not None and before is not self._bridge:
            # The news would reach only one of the loops, and that one may have closed.
            threading.Thread(target=self._read_for_all, name="monarch-loops", daemon=True).start()
        if consumer not in waiters:
            waiters.append(consumer)
        self._arm()

    def cancel(self) -> None:
        """No more messages: whoever waits for one wakes, and those who were called hear of it."""
        self.runtime.cancel_call(self.inbox)

    def _read_for_all(self) -> None:
        while self._waiters:
            with contextlib.suppress(IndexError, ValueError):  # A loop may be faster.
                consumer = self._waiters[0]
                self.read_for(consumer, None)
                self._waiters.remove(consumer)

    def _arm(self) -> None:
        # A thread that reads now looks at the waiters after it has released the lock.
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._disarm()
            bridge = self._bridge
            if bridge is not None and self._waiters:
                self._cookie = bridge.add(self._pump)
                # Notifies at once if something is there already.
                self.inbox.set_notifier(bridge.notifier, self._cookie)
                self._armed_at = bridge
        finally:
            self._lock.release()

    def _disarm(self) -> None:
        if self._cookie is not None:
            self.inbox.set_notifier(None, 0)
            self._armed_at.remove(self._cookie)
            self._cookie = None

    def _pump(self) -> None:
        waiters = self._waiters
        if waiters is None or not self._lock.acquire(blocking=False):
            return
        try:
            while waiters:
                if waiters[0].is_settled():
                    waiters.popleft()
                    continue
                message = self.inbox.try_pop()
                if message is None and not self.inbox.finished():
                    break
                waiters[0].feed(message)
            if not waiters:
                self._disarm()
        finally:
            self._lock.release()
        if waiters and self._cookie is None:
            self._arm()  # Another loop's, which came at the last moment.
