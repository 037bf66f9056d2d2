"""The end of the supervision tree: what nobody handled ends the program."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING

from monarch._actor.failure import MeshFailure
from monarch._actor.stderr import say

if TYPE_CHECKING:
    import asyncio

_lock = threading.Lock()
_loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


def unhandled_fault_hook(failure: MeshFailure) -> None:
    """Called for a failure that no owner handled. Returning means handled; raising ends the program.

    Assign a function of your own to `monarch.actor.unhandled_fault_hook` to replace it. It runs on a thread of its own;
    the event loops that meshes were spawned in look again when it returns, so an `asyncio.Event` may be set in it.
    """
    sys.exit(1)


def remember_loop(loop: asyncio.AbstractEventLoop) -> None:
    """The program spawned something in `loop`, and may wait there for what its hook tells."""
    with _lock:
        _loops.add(loop)


def run_fault_hook(failure: MeshFailure) -> None:
    actor = sys.modules.get("monarch.actor")
    hook = unhandled_fault_hook if actor is None else actor.unhandled_fault_hook
    try:
        hook(failure)
    except BaseException as error:
        if not isinstance(error, SystemExit):
            sys.excepthook(type(error), error, error.__traceback__)
        _end_program(failure)
    _wake_loops()


def _wake_loops() -> None:
    """What a hook sets is not thread-safe in general, and a loop that sleeps would see it at its next timer."""
    with _lock:
        loops = list(_loops)
    for loop in loops:
        with contextlib.suppress(RuntimeError):  # It is closed.
            loop.call_soon_threadsafe(lambda: None)


def _end_program(failure: MeshFailure) -> None:
    import socket

    now = time.strftime("%Y-%m-%d %H:%M:%S")
    head = f"Unhandled monarch error on the root actor, hostname={socket.gethostname()}, PID={os.getpid()} at time {now}:"
    say(f"{head}\n{failure.report()}\n")
    handler = signal.getsignal(signal.SIGINT)
    main = threading.main_thread()
    if handler in (signal.SIG_IGN, signal.SIG_DFL, None) or main.ident is None or not main.is_alive():
        # Nothing would come of an interrupt, as in a shell's background jobs. Exit handlers may wait for this thread,
        # so they run on another; the main thread waits for that one if it ends meanwhile.
        try:
            threading.Thread(target=_exit, name="monarch-exit", daemon=False).start()
        except RuntimeError:  # The interpreter is ending.
            os._exit(1)
        return
    # To the main thread itself, so that it returns from whatever system call it sleeps in.
    signal.pthread_kill(main.ident, signal.SIGINT)


def _exit() -> None:
    """Ends the program without its main thread, but with what it registered for its end."""
    try:
        atexit._run_exitfuncs()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os._exit(1)
