"""One-way reply addresses, and their receiving ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from monarch import _runtime
from monarch._actor import pickling
from monarch._actor.answers import Description, error_of
from monarch._actor.context import context
from monarch._actor.errors import send_error
from monarch._actor.exception_text import format_exception
from monarch._actor.future import Future
from monarch._actor.receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Callable

    from monarch._runtime import Address, Inbox, Message

R = TypeVar("R")

_NO_RANK = 0xFFFFFFFF


class Port(pickling.Reference, Generic[R]):
    """Where values are sent to. Picklable: whoever gets it sends under its own name.

    Attributes:
        return_undeliverable: accepted for programs that set it: what comes too late for its receiver is dropped, and
            its sender does not hear of it.
    """

    def __init__(
        self,
        owner: Address,
        port_id: int,
        rank: int | None = None,
        once: bool = False,
        used: bool = False,
        return_undeliverable: bool = True,
    ) -> None:
        self._owner = owner
        self._id = port_id
        self._rank = rank
        self._once = once
        self._used = used
        self._inbox: Inbox | None = None
        self.return_undeliverable = return_undeliverable

    def send(self, obj: R) -> None:
        """Sends one value; a receiver that is gone does not mind."""
        self._post(_runtime.PORT_MESSAGE, *pickling.dumps_value(obj))

    def exception(self, exc: BaseException) -> None:
        """Makes the receiver's recv() raise `exc`."""
        meta = _runtime.encode_value({"traceback": format_exception(exc)})
        self._post(_runtime.EXCEPTION, meta, pickling.dumps(exc))

    def _post(self, kind: int, meta: bytes, parts: list[Any]) -> None:
        if self._once and self._used:
            raise RuntimeError("OncePortRef already used")
        instance = context().actor_instance
        rank = _NO_RANK if self._rank is None else self._rank
        try:
            instance.runtime.send_to_port(
                instance.actor, self._owner, self._id, rank, kind, _runtime.PICKLE, meta, parts
            )
        except _runtime.StatusError as error:
            raise send_error(error) from None
        self._used = True

    def _local_inbox(self) -> Inbox:
        if self._inbox is None:
            raise ValueError("answers can go only to a port that was opened in this process")
        return self._inbox

    def __reduce__(self) -> Any:
        described = (self._owner, self._id, self._rank, self._once, self._used, self.return_undeliverable)
        return (Port, described)

    def __repr__(self) -> str:
        return f"<Port {self._id} of actor {self._owner[3]} in proc {self._owner[1]}>"


class PortReceiver(Generic[R]):
    """The receiving end of a channel. It stays in the actor that opened it."""

    def __init__(self, receiver: Receiver, once: bool, ranked: bool = False) -> None:
        self._receiver = receiver
        self._once = once
        self._used = False
        self._ranked = ranked

    def recv(self) -> Future[R]:
        """The next message; taken when the future is first looked at."""
        if self._once and self._used:
            raise ValueError("OncePort is already used")
        self._used = True
        return Future._from_receiver(self._receiver, _collect_message(self._ranked))

    def ranked(self) -> RankedPortReceiver[R]:
        """The same messages, each with its sender's rank; recv() raises ValueError for one that has none."""
        return RankedPortReceiver(self._receiver, self._once, True)

    def __reduce__(self) -> Any:
        raise TypeError(
            f"cannot pickle {type(self).__name__!r} object: it receives for the actor that opened it"
        )


class RankedPortReceiver(PortReceiver[Any], Generic[R]):
    """recv() gives (rank, value)."""


def _collect_message(ranked: bool) -> Callable[[Future[Any], Message | None], None]:
    def collect(future: Future[Any], message: Message | None) -> None:
        if message is None:
            future._set_error(EOFError("Port closed: no message will come"))
            return
        if message.kind == _runtime.FAILURE:
            future._set_error(error_of(message, Description("port", "<root>", "", "")))
            return
        if ranked and message.rank == _NO_RANK:
            future._set_error(ValueError("the message has no rank: no member of a mesh sent it as an answer"))
            return
        if message.payload_kind == _runtime.VALUE:
            value = _runtime.decode_value(bytes(message.parts[0])) if message.parts else None
        else:
            value = pickling.loads(message.parts)
        if message.kind == _runtime.EXCEPTION:
            future._set_error(cast("BaseException", value))
        else:
            future._set_value((message.rank, value) if ranked else value)

    return collect


def _open(once: bool) -> tuple[Port[Any], Receiver]:
    instance = context().actor_instance
    inbox = instance.runtime.open_port(instance.actor)
    port: Port[Any] = Port(instance.address, inbox.id, once=once)
    port._inbox = inbox
    receiver = Receiver(instance.runtime, inbox)
    receiver.single = False
    return port, receiver


class Channel(Generic[R]):
    """A port and its receiver."""

    @staticmethod
    def open(once: bool = False) -> tuple[Port[R], PortReceiver[R]]:
        """A channel of the current actor; with `once`, for one message."""
        port, receiver = _open(once)
        return port, PortReceiver(receiver, once)

    @staticmethod
    def open_ranked(once: bool = False) -> tuple[Port[R], RankedPortReceiver[R]]:
        """As open(); the receiver gives (rank, value)."""
        port, receiver = _open(once)
        return port, RankedPortReceiver(receiver, once, True)
