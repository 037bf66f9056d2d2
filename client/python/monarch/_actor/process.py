"""This process's part in a session: a client, or a worker. There is one for each process."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from monarch import _runtime
from monarch._actor import owned
from monarch._actor.construction import LOOK_S
from monarch._actor.context import Context, Instance, client_context, current_endpoint
from monarch._actor.hang import HangNews
from monarch._actor.interrupt import shorten_interrupts
from monarch._actor.log_stream import LogStream
from monarch._config.layers import layers

if TYPE_CHECKING:
    from monarch._actor.actor_runner import ActorRunner
    from monarch._actor.log_stream import MeshOutput
    from monarch._actor.member_news import MemberNews
    from monarch._control import Channel
    from monarch._runtime import Message, Proc

# At a client's end actors have so long for what was sent to them, and then the time for their clean-ups.
_DRAIN_S = 2.0
# What a client waits for then: workers have a second until they are killed.
_GOODBYE_S = 2.0
# For threads in the middle of a request, afterwards.
_BACKGROUND_S = 1.0
# For the workers' last lines to arrive then.
_OUTPUT_S = 1.0

_FORKED = (
    "monarch cannot be used in a forked child of its client: the client's threads are not in it. Start the child "
    'anew (multiprocessing\'s "spawn" method, or subprocess).'
)


class Process:
    """The runtime, the actors of this process, and the control channel once it is needed. Thread-safe."""

    def __init__(self, runtime: _runtime.Runtime, *, is_client: bool, boot: dict[str, Any]) -> None:
        self.runtime = runtime
        self.is_client = is_client
        self.boot = boot
        self.self_proc: Proc = runtime.self_proc
        self.root_proc: Proc = tuple(boot["root"]) if "root" in boot else self.self_proc
        self.runners: dict[int, ActorRunner] = {}
        self.actor_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self.background: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # that make requests
        self._lock = threading.Lock()
        self._control: Channel | None = None
        self._member_news: MemberNews | None = None
        self._root: Instance | None = None
        self.hangs = HangNews()
        self.log_stream: LogStream | None = None  # in a client
        runtime.set_endpoint_namer(current_endpoint)
        if is_client:
            self._root = Instance(runtime, (*self.self_proc, _runtime.ROOT_ACTOR), {"name": "root"})
            self._root_context = Context(self._root)

    def default_context(self) -> Context:
        """For code that runs in no actor: the root client; in a worker, its first actor, for which its threads act."""
        if self._root is not None:
            return self._root_context
        for runner in list(self.runners.values()):
            if runner.instance is not None:
                return Context(runner.instance)
        raise RuntimeError("no actor runs in this process yet, so there is none to act for")

    def add_output(self) -> MeshOutput | None:
        """For a mesh that is being spawned: how its output is printed, if that is for this process to say."""
        if self.log_stream is None or not layers.effective["enable_log_forwarding"]:
            return None
        return self.log_stream.add_mesh(self.self_proc[0], self.runtime.host_name)

    def control(self) -> Channel:
        """Loads gRPC."""
        with self._lock:
            if self._control is None:
                from monarch import _control

                self._control = _control.Channel(self.runtime.open_control, self.runtime.control_token)
            return self._control

    def member_news(self) -> MemberNews:
        with self._lock:
            if self._member_news is None:
                from monarch._actor.member_news import MemberNews

                self._member_news = MemberNews(self.runtime)
            return self._member_news


_process: Process | None = None
_draining: Process | None = None  # a client that ends in good order
_lock = threading.Lock()
_ended: str | None = None
_gateway: str | None = None  # the address of a host that the client joins when it starts


def process() -> Process:
    """This process's; in a program that is no worker, the first call starts the client."""
    found = _process
    if found is not None:
        return found
    with _lock:
        if _process is not None:
            return _process
        if _ended is not None:
            raise RuntimeError(_ended)
        return _start_client()


def exists() -> bool:
    """Whether this process is a worker, or its client has been started."""
    return _process is not None


def set_gateway(address: str) -> None:
    """The client joins the host there when it starts, which must be still to come."""
    global _gateway
    with _lock:
        if _process is not None:
            raise RuntimeError(
                "client already bootstrapped: call attach() before context(), this_host(), this_proc() and all else"
            )
        _gateway = address


def set_worker(runtime: _runtime.Runtime, boot: dict[str, Any]) -> Process:
    global _process
    _process = Process(runtime, is_client=False, boot=boot)
    return _process


def _open_fd(fd: int) -> int:
    """The fd, or -1 if the program runs without it."""
    try:
        os.fstat(fd)
    except OSError:
        return -1
    return fd


def _start_client() -> Process:
    global _process
    monarchd = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin", "monarchd")
    name = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"
    if name in ("-c", "-"):
        name = "python"
    log_stream = LogStream()
    try:
        runtime = _runtime.Runtime.start_client(
            "", monarchd if os.path.exists(monarchd) else "", name, _open_fd(1), _open_fd(2), log_stream.fd
        )
    finally:
        log_stream.handed_out()
    layers.warn_of_idle()
    started = Process(runtime, is_client=True, boot={})
    if _gateway is not None:
        try:
            timeout_ms = max(1, int(layers.seconds("mesh_attach_config_timeout") * 1000))
            started.control().attach_host(_gateway, timeout_ms)
        except BaseException:
            runtime.goodbye(_GOODBYE_S)
            raise
    started.log_stream = log_stream
    _process = started
    client_context._val = started.default_context()
    atexit.register(shutdown)
    shorten_interrupts()
    threading.Thread(target=_watch_root, args=(started,), name="monarch-root", daemon=True).start()
    threading.Thread(target=_serve_tasks, args=(started,), name="monarch-agent", daemon=True).start()
    return started


def shutdown() -> None:
    """Ends the client's session: nothing of it is left afterwards."""
    global _process, _ended
    with _lock:
        ending, _process = _process, None
        client_context._val = None
        if _ended is None:
            _ended = "the client of this process was shut down and cannot be started again"
    if ending is None:
        return
    with contextlib.suppress(KeyboardInterrupt):  # Enough of that.
        _stop_in_order(ending)
    # A daemon that is gone has taken the session along.
    with contextlib.suppress(_runtime.StatusError):
        ending.runtime.goodbye(_GOODBYE_S)
    # Their requests have ended with the session. The interpreter's end unwinds threads, which C++ does not survive.
    deadline = time.monotonic() + _BACKGROUND_S
    for thread in list(ending.background):
        thread.join(max(0.0, deadline - time.monotonic()))
    if ending.log_stream is not None:
        ending.log_stream.finish(_OUTPUT_S)


def _stop_in_order(ending: Process) -> None:
    """The actors handle what was sent to them and clean up, those of this process too; not after a Ctrl-C."""
    if issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt):
        return
    global _draining
    _draining = ending
    assert ending._root is not None
    deadline = time.monotonic() + _DRAIN_S + layers.seconds("cleanup_timeout")
    owned.session_ends(deadline)
    owned.stop_owned_actors(ending._root, "the session ends: its client has ended", deadline)


def _after_fork_in_child() -> None:
    global _process, _ended
    if _process is not None:
        _process, _ended = None, _FORKED
        client_context._val = None


os.register_at_fork(after_in_child=_after_fork_in_child)


def start_actor(owner: Process, task: _runtime.Task) -> None:
    from monarch._actor.actor_runner import ActorRunner

    runner = ActorRunner(owner, task.actor, task.mailbox, task.create)
    owner.runners[task.actor] = runner
    runner.start()


def next_task(owner: Process) -> _runtime.Task | None:
    """Waits for one; returns None now and then."""
    task = owner.runtime.next_task(LOOK_S if give_up_constructions(owner) else None)
    if task is not None and task.kind == "hang":
        owner.hangs.tell(owner, task.hang)
        return None
    return task


def give_up_constructions(owner: Process) -> bool:
    """Ends actors that were told to stop and whose `__init__` does not end. Whether any `__init__` still runs."""
    running = False
    for runner in list(owner.runners.values()):
        construction = runner.construction
        if construction is None:
            continue
        running = True
        request = construction.overdue_stop()
        if request is not None:
            give_up = functools.partial(runner.give_up_construction, request, construction.left())
            threading.Thread(target=give_up, name="monarch-give-up", daemon=True).start()
    return running


def _serve_tasks(client: Process) -> None:
    """Actors that are spawned into the client's own process."""
    while True:
        try:
            task = next_task(client)
        except _runtime.StatusError:
            return
        if task is not None and task.kind == "create":
            start_actor(client, task)
        elif task is not None:
            return


def _watch_root(client: Process) -> None:
    """Failures that nobody below handled."""
    # Else its news come by the process's bell, and whoever waits there makes each answer to a call ring it too.
    client.runtime.bind_actor(_runtime.ROOT_ACTOR)
    mailbox = client.runtime.root_mailbox()
    while True:
        try:
            message = client.runtime.receive(mailbox, None)
        except _runtime.StatusError:
            return
        if message is None:
            return
        if message.kind == _runtime.ACTOR_FAILED and client in (_process, _draining):
            _root_failure(client, message)


def _root_failure(client: Process, message: Message) -> None:
    from monarch._actor.failure import FailureEvent, MeshFailure
    from monarch._actor.fault_hook import run_fault_hook

    event = FailureEvent(message.event)
    if client is _draining:
        # The program is at its end, and nobody else would say it. What cannot be reached any more has ended with the
        # session, as its daemon does.
        if event.kind != "unreachable":
            owned.warn_late(f"failed while the program ended:\n{MeshFailure(event).report()}")
        return
    if client.default_context().actor_instance.is_news(event):
        run_fault_hook(MeshFailure(event))
