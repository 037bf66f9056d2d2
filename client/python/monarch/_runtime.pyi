"""The message plane: client/cpp/runtime, bound. No gRPC, no protobuf in this module.

Blocking calls release the GIL, return to check signals, and start over with the time that is left.
Errors are StatusErrors.
"""

from collections.abc import Callable, Sequence
from typing import Any

Proc = tuple[bytes, int, int]  # host (16 bytes), proc, incarnation
Address = tuple[bytes, int, int, int]  # ... and the actor

# frame kinds and payload kinds of message/frame.h
CREATE: int
CALL: int
REPLY: int
EXCEPTION: int
FAILURE: int
PORT_MESSAGE: int
STOP_ACTOR: int
ACTOR_FAILED: int
CANCEL: int
NONE: int
VALUE: int
PICKLE: int
ROOT_ACTOR: int
VERSION: str

class StatusError(RuntimeError):
    """A status that is not OK. `code` is absl's name ("UNAVAILABLE"), `message` its text."""

    code: str
    message: str

class Part:
    """One part of a received payload; supports the buffer protocol (writable unless the block is shared)."""

    def __len__(self) -> int: ...

class Message:
    kind: int
    payload_kind: int
    sender: Address
    receiver: Address
    call_id: int
    port_id: int
    rank: int
    is_late: bool  # of a call: its deadline has passed; it is not begun any more
    cancelled: bool  # of a call: a CANCEL for it was taken from the mailbox
    @property
    def meta(self) -> object: ...  # decoded value (None if empty)
    @property
    def meta_bytes(self) -> bytes: ...
    @property
    def parts(self) -> list[memoryview] | list[bytes]: ...  # bytes: one part, and small
    @property
    def event(
        self,
    ) -> dict[str, Any]: ...  # FAILURE, ACTOR_FAILED: the FailureEvent, all fields, cause as a list of dicts

class Notifier:
    def take(self) -> list[int]: ...
    def event_fd(self) -> int: ...

class Inbox:
    id: int
    def try_pop(self) -> Message | None: ...
    # Whether nobody waits any more for the answer to this call, which was taken from here and is not answered.
    def is_cancelled(self, call: Message) -> bool: ...
    def finished(self) -> bool: ...
    def __len__(self) -> int: ...
    # A call's: whoever waits wants the next answer, not all of them.
    def set_any_answer_ends_wait(self) -> None: ...
    # A mailbox's: others than its actor's thread may answer what was taken from it.
    def set_others_answer(self) -> None: ...
    def set_notifier(self, notifier: Notifier | None, cookie: int) -> None: ...

class Task:
    kind: str  # "create", "stop" or "hang"
    hang: dict[str, Any]
    actor: int
    create: Message
    mailbox: Inbox
    reason: str
    grace: float  # seconds
    session_ends: bool  # all processes stop at the same time, and none outlives the grace

class Runtime:
    @staticmethod
    def start_client(
        address: str, monarchd: str, name: str, stdout_fd: int, stderr_fd: int, output_stream_fd: int
    ) -> Runtime: ...
    @staticmethod
    def start_worker() -> Runtime: ...
    self_proc: Proc
    session: str
    host_name: str
    boot: bytes
    @property
    def limits(self) -> dict[str, int]: ...  # base/limits.h, as this process has them
    def send_ready(self) -> None: ...
    @property
    def control_token(self) -> str: ...
    def open_control(self) -> int: ...  # an fd, the caller's
    def goodbye(self, timeout: float) -> bool: ...  # whether all is gone within the time
    # None: wait for ever. True: news; False: timed out.
    def wait(self, inbox: Inbox, timeout: float | None) -> bool: ...
    # The next message. None: timed out, or the inbox is finished.
    def receive(self, inbox: Inbox, timeout: float | None) -> Message | None: ...
    def wait_notifier(self, notifier: Notifier, epoll_fd: int, timeout: float | None) -> bool: ...
    def wake_notifier(self, notifier: Notifier) -> None: ...
    def make_notifier(self) -> Notifier: ...
    def add_bell_waiter(self) -> None: ...
    def remove_bell_waiter(self) -> None: ...
    def next_task(self, timeout: float | None) -> Task | None: ...
    def root_mailbox(self) -> Inbox: ...  # in a client
    def next_actor_id(self) -> int: ...
    def bind_actor(self, actor: int) -> None: ...
    # For who looks from outside: the calling thread's actor begins `what` now. Empty: it is idle. receive() on its
    # mailbox says that by itself.
    def set_activity(self, what: bytes) -> None: ...
    # The same with a call that was taken ahead, from its begin; if not `shown`, the begin is noted alone.
    def call_runs(self, call: Message, shown: bool) -> None: ...
    # Says what the calling thread's actor is in, for reports of deadlocks.
    def set_endpoint_namer(self, namer: Callable[[], str]) -> None: ...
    # A mailbox for an actor made here by other means than a CREATE.
    def add_actor(self, actor: int, name: str, cls: str, owner: Address) -> Inbox: ...
    # For who looks from outside, of an actor that supervises a mesh: mesh, of_procs, policy, incarnation, restarts,
    # given_up, and cause, an event or None.
    def show_restarts(self, actor: int, restarts: dict[str, Any]) -> None: ...
    # event: kind, reason, traceback, cause; who and where are filled in.
    def end_actor(self, actor: int, event: dict[str, Any]) -> None: ...
    # parts: objects with the buffer protocol
    def reply(
        self, request: Message, kind: int, payload_kind: int, meta: bytes, parts: Sequence[object]
    ) -> None: ...
    # After `timeout` seconds the call is given up, and a CANCEL takes the place of each answer that is missing.
    def open_call(self, caller: int, answers: int, timeout: float | None = None) -> Inbox: ...
    # open_call for an answer from each target, and send of a pickled CALL
    def call(self, caller: int, targets: Targets, meta: bytes, parts: Sequence[object]) -> Inbox: ...
    def send(
        self,
        sender: int,
        kind: int,
        targets: Targets,
        payload_kind: int,
        meta: bytes,
        parts: Sequence[object],
        call: Inbox | None,
    ) -> None: ...
    def fail_call(self, call: Inbox, rank: int, event: dict[str, Any]) -> None: ...
    # Those who have not answered hear that nobody waits; whoever waits for the answers wakes.
    def cancel_call(self, call: Inbox) -> None: ...
    def open_port(self, owner: int) -> Inbox: ...
    def send_to_port(
        self,
        sender: int,
        receiver: Address,
        port_id: int,
        rank: int,
        kind: int,
        payload_kind: int,
        meta: bytes,
        parts: Sequence[object],
    ) -> None: ...
    def add_owned_mesh(
        self,
        owner: int,
        mesh: str,
        cls: str,
        actor: int,
        procs: Sequence[Proc],
        labels: Sequence[str],
        sizes: Sequence[int],
        actors: Sequence[int] = (),  # of each rank, where not all are `actor`
    ) -> None: ...
    def remove_owned_mesh(self, owner: int, actor: int, mesh: str) -> None: ...
    def death_of(self, proc: Proc) -> dict[str, Any] | None: ...
    # The event with what has become known since of a process's death: waits for that, at most `timeout` seconds.
    def with_detail(self, event: dict[str, Any], timeout: float) -> dict[str, Any]: ...
    def stats(self) -> dict[str, int]: ...

# In a worker: crashes write a report to stderr. Handlers that are there run afterwards.
def install_crash_handler() -> None: ...

# If another thread has begun to crash, waits for that to end the process.
def await_crash() -> None: ...

class Targets:
    """A prepared list of receivers: built once for each mesh or slice, used for each send."""

    def __init__(self, actors: Sequence[Address], ranks: Sequence[int]) -> None: ...
    def __len__(self) -> int: ...
    def one(self, index: int) -> Targets: ...

# The pickle of small plain objects; None for others.
def dumps_plain(value: object) -> bytes | None: ...

# Loads such a pickle; anything else by otherwise(data).
def loads_plain(data: bytes | memoryview, otherwise: Callable[[Any], Any]) -> Any: ...
def encode_value(value: object) -> bytes: ...  # ValueError: no value can hold it
def encode_event(event: dict[str, Any]) -> bytes: ...
def decode_value(data: bytes) -> object: ...
