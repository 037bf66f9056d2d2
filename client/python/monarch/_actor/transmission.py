"""A call's message on its way to those that it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monarch import _runtime
from monarch._actor import peer_semantics, pickling
from monarch._actor.errors import ResourceExhausted, send_error
from monarch._actor.readiness import size_of, wait_for_room

if TYPE_CHECKING:
    from monarch._actor.context import Instance
    from monarch._actor.endpoint import EndpointTarget
    from monarch._runtime import Inbox, Targets


class Transmission:
    """Sends now, or once the mesh is ready; to a member that is being started again, once it is up.

    Attributes:
        parts: the pickled arguments; what waits has a copy of the caller's buffers.
        call: gets the answers, and a failure for each member that the message cannot be sent to.
    """

    __slots__ = ("_call_name", "_instance", "_mesh", "_meta", "_owns_parts", "call", "parts")

    def __init__(
        self,
        instance: Instance,
        mesh: EndpointTarget,
        call_name: str,
        meta: Any,
        parts: list[Any],
        call: Inbox | None,
    ) -> None:
        self._instance = instance
        self._mesh = mesh
        self._call_name = call_name
        self._meta = meta
        self.parts = parts
        self.call = call
        self._owns_parts = False

    def start(self, only: int | None, answers: int, deadline: float | None = None) -> None:
        """To all, or to the one at a place.

        Args:
            deadline: a monotonic time after which the call is given up.

        Raises:
            ResourceExhausted: there is no room for it; nobody gets it.
        """
        mesh = self._mesh
        stopped = mesh._stop_event()
        if stopped is not None:
            self._fail(answers, stopped)
            if peer_semantics.strict():
                why = peer_semantics.UndeliverableMessage(
                    self._call_name, f"actor stopped: {stopped['reason']}"
                )
                peer_semantics.fail_sender(self._instance, why)
            return

        def send_later() -> None:
            try:
                self._send(only)
            except ResourceExhausted as error:
                text = f"the message could not be sent: {error}"
                self._fail(answers, {"kind": "exception", "reason": text})

        readiness = mesh._readiness()
        if readiness.ready:
            if not mesh._members().down or self._wait_for_room(only, deadline):
                self._send(only)
        elif wait_for_room(
            self._instance.runtime.limits, lambda: readiness, f"mesh {mesh._mesh_name()!r}", deadline
        ):
            self._own_parts()
            readiness.post(
                send_later,
                lambda error: self._fail(answers, {"kind": "start_failed", "reason": str(error)}),
                size_of(self.parts),
            )

    def _own_parts(self) -> None:
        """The caller may change its arrays as soon as the call is made."""
        if self._owns_parts:
            return
        self._owns_parts = True
        # What is larger is refused when its time has come.
        if size_of(self.parts) <= self._instance.runtime.limits["segment_bytes_max"]:
            self.parts = pickling.copied(self.parts)

    def _wait_for_room(self, only: int | None, deadline: float | None) -> bool:
        """At those who are being started again."""
        limits, down = self._instance.runtime.limits, self._mesh._members().down

        def is_in_time(rank: int) -> bool:
            what = f"rank {rank} of mesh {self._mesh._mesh_name()!r}"
            return wait_for_room(limits, lambda: down.get(rank), what, deadline)

        ranks = list(self._mesh._shape_now().ndslice)
        return all(is_in_time(rank) for rank in (ranks if only is None else [ranks[only]]))

    def _send(self, only: int | None) -> None:
        targets = self._mesh._targets()
        if targets is not None:
            self._send_to(targets if only is None else targets.one(only))
            return
        # Each member gets it when it can.
        self._own_parts()
        ranks = list(self._mesh._shape_now().ndslice)
        size = size_of(self.parts)
        for at in range(len(ranks)) if only is None else (only,):
            self._send_when_up(at, ranks[at], size)

    def _send_when_up(self, at: int, rank: int, size: int) -> None:
        members = self._mesh._members()

        def send() -> None:
            self._send_to(_runtime.Targets([members.addresses[rank]], [at]))

        def fail(error: BaseException) -> None:
            if self.call is not None:
                event = getattr(error, "event", None) or {"kind": "exception", "reason": str(error)}
                self._instance.runtime.fail_call(self.call, at, event)

        members.when_up([rank], send, fail, size)

    def _send_to(self, targets: Targets) -> None:
        instance = self._instance
        try:
            instance.runtime.send(
                instance.actor, _runtime.CALL, targets, _runtime.PICKLE, self._meta, self.parts, self.call
            )
        except _runtime.StatusError as error:
            raise send_error(error) from None

    def _fail(self, answers: int, event: dict[str, Any]) -> None:
        if self.call is not None:
            for rank in range(answers):
                self._instance.runtime.fail_call(self.call, rank, event)
