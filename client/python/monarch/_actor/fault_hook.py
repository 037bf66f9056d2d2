"""The end of the supervision tree: what nobody handled ends the program."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from monarch._actor.failure import MeshFailure


def unhandled_fault_hook(failure: MeshFailure) -> None:
    """Called for a failure that no owner handled. Returning means handled; raising ends the program.

    Assign a function of your own to `monarch.actor.unhandled_fault_hook` to replace it.
    """
    sys.exit(1)


def run_fault_hook(failure: MeshFailure) -> None:
    actor = sys.modules.get("monarch.actor")
    hook = unhandled_fault_hook if actor is None else actor.unhandled_fault_hook
    try:
        hook(failure)
    except BaseException as error:
        if not isinstance(error, SystemExit):
            sys.excepthook(type(error), error, error.__traceback__)
        _end_program(failure)


def _end_program(failure: MeshFailure) -> None:
    import socket

    now = time.strftime("%Y-%m-%d %H:%M:%S")
    head = f"Unhandled monarch error on the root actor, hostname={socket.gethostname()}, PID={os.getpid()} at time {now}:"
    try:
        sys.stderr.write(f"{head}\n{failure.report()}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass  # Without a stderr nobody can be told; the program ends all the same.
    handler = signal.getsignal(signal.SIGINT)
    main = threading.main_thread()
    if handler in (signal.SIG_IGN, signal.SIG_DFL, None) or main.ident is None or not main.is_alive():
        # Nothing would come of an interrupt, as in a shell's background jobs.
        os._exit(1)
    # To the main thread itself, so that it returns from whatever system call it sleeps in.
    signal.pthread_kill(main.ident, signal.SIGINT)
