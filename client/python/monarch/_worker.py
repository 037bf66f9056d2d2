"""What a worker process runs: `from monarch._worker import main; main()`."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import sys
import time
from typing import Any

from monarch import _runtime
from monarch._actor import owned
from monarch._actor.construction import LOOK_S
from monarch._actor.process import Process, give_up_constructions, next_task, set_worker, start_actor
from monarch._config.layers import layers
from monarch._debugger import hook

# Part of the grace that is left for leaving the process after the actors were stopped: so much at most, and as a share.
_LEAVE_S = 0.5
_LEAVE_SHARE = 0.3
# For the threads of actors that have stopped to end.
_JOIN_S = 0.2


def main() -> None:
    """Joins the session, then serves until told to stop; the process ends with status 0."""
    try:
        runtime = _runtime.Runtime.start_worker()
    except _runtime.StatusError as error:
        # Its daemon has ended meanwhile, as a rule: a line for people, of which nobody has to read this code.
        sys.exit(f"monarch: this process does not start: {error}")
    boot: Any = _runtime.decode_value(runtime.boot)
    _report_crashes()
    _apply(boot)
    hook.install()
    owner = set_worker(runtime, boot)
    runtime.send_ready()
    while True:
        task = next_task(owner)
        if task is None:
            continue
        if task.kind == "create":
            start_actor(owner, task)
        else:
            _runtime.await_crash()
            _stop_actors(owner, task)
            _leave(owner)


def _leave(owner: Process) -> None:
    """Ends the process with status 0, as Python does, or without the interpreter's end if an actor is still at work:
    that would unwind its thread, which C++ does not survive."""
    deadline = time.monotonic() + _JOIN_S
    threads = list(owner.actor_threads)
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # None, or closed.
                stream.flush()
        os._exit(0)
    sys.exit(0)


def _report_crashes() -> None:
    """A crash writes its native frames to stderr, then those of Python."""
    # The other threads' frames would push what the program said last out of the lines that a failure carries.
    faulthandler.enable(all_threads=False)
    _runtime.install_crash_handler()


def _apply(boot: dict[str, Any]) -> None:
    layers.inherit(boot.get("config", {}))
    if "path" in boot:
        sys.path[:] = boot["path"]
    else:
        sys.path[:0] = [entry for entry in boot.get("extra_path", ()) if entry not in sys.path]
    sys.argv = [""]
    for stream in (sys.stdout, sys.stderr):
        # A pipe, but read by people: what is printed shall not wait for the end of the process.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")


def _stop_actors(owner: Process, task: _runtime.Task) -> None:
    """Stops all actors at once and waits for them, within the grace."""
    actors = list(owner.runners)
    if not actors:
        return
    deadline = time.monotonic() + task.grace - min(_LEAVE_S, task.grace * _LEAVE_SHARE)
    if task.session_ends:
        owned.session_ends(deadline)
    runtime = owner.runtime
    call = runtime.open_call(0, len(actors))
    targets = _runtime.Targets([(*owner.self_proc, actor) for actor in actors], range(len(actors)))
    runtime.send(
        0,
        _runtime.STOP_ACTOR,
        targets,
        _runtime.NONE,
        _runtime.encode_value({"reason": task.reason}),
        [],
        call,
    )
    for _ in actors:
        while True:
            left = max(0.0, deadline - time.monotonic())
            if runtime.wait(call, min(left, LOOK_S) if give_up_constructions(owner) else left):
                break
            if left == 0.0:
                # Nobody waits for a session's end, so that is not worth a word.
                for runner in [] if task.session_ends else list(owner.runners.values()):
                    owned.warn_late(
                        f"the process leaves after {task.grace:g} s without its actor: {runner.at_work()}"
                    )
                return
        call.try_pop()


if __name__ == "__main__":
    main()
