"""The event loop of an actor with async endpoints: it sleeps where the actor's messages wake it."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any

from monarch._actor.receiver import LoopBridge, register_bridge

if TYPE_CHECKING:
    from monarch._runtime import Runtime


class _Selector(selectors.EpollSelector):
    """Waits for messages, and for file descriptors only if there are any: without them a wake-up is one futex call."""

    def __init__(self, runtime: Runtime, bridge: LoopBridge) -> None:
        super().__init__()
        self._runtime = runtime
        self._bridge = bridge

    def select(self, timeout: float | None = None) -> Any:
        watching = len(self.get_map()) > 0
        self._runtime.wait_notifier(self._bridge.notifier, self.fileno() if watching else -1, timeout)
        events = super().select(0) if watching else []
        self._bridge.dispatch()
        return events


class ActorEventLoop(asyncio.SelectorEventLoop):
    def __init__(self, runtime: Runtime) -> None:
        self._monarch = runtime
        self._bridge = LoopBridge(runtime, runtime.make_notifier())
        super().__init__(_Selector(runtime, self._bridge))
        register_bridge(self, self._bridge)

    @property
    def bridge(self) -> LoopBridge:
        return self._bridge

    # asyncio's own way to wake a loop is a socket pair; the wait word does it.
    def _make_self_pipe(self) -> None:
        pass

    def _close_self_pipe(self) -> None:
        pass

    def _write_to_self(self) -> None:
        self._monarch.wake_notifier(self._bridge.notifier)
