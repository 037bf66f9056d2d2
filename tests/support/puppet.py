"""A client that does what a test tells it: code comes in on one fd, results go out on another, as lines of JSON."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import monarch.actor
from live_actors import *  # noqa: F403 - what the commands use

_failed = threading.Condition()
_failures: list[dict[str, Any]] = []


def _record(failure: Any) -> None:
    with _failed:
        _failures.append({"report": failure.report(), **_event(failure.event)})
        _failed.notify_all()


def failures(count: int, timeout: float = 20) -> list[dict[str, Any]]:
    """What reached the root unhandled, once there are so many."""
    with _failed:
        if not _failed.wait_for(lambda: len(_failures) >= count, timeout):
            raise TimeoutError(f"{count} failures awaited, told: {_failures}")
        return list(_failures)


def failures_so_far() -> list[dict[str, Any]]:
    with _failed:
        return list(_failures)


def forget_failures() -> None:
    with _failed:
        _failures.clear()


def _event(event: Any) -> dict[str, Any]:
    names = (
        "kind",
        "code",
        "rank",
        "mesh",
        "actor_class",
        "pid",
        "reason",
        "phase",
        "stderr_tail",
        "backtrace",
    )
    if event is None:
        return {}
    return {"cause": _event(event.cause), **{name: getattr(event, name) for name in names}}


def _error(error: BaseException) -> dict[str, Any]:
    return {
        "types": [cls.__name__ for cls in type(error).__mro__],
        "text": str(error),
        "limit": getattr(error, "limit", ""),
        **_event(getattr(error, "event", None)),
    }


def _execute(scope: dict[str, Any], code: str) -> dict[str, Any]:
    try:
        try:
            compiled = compile(code, "<test>", "eval")
        except SyntaxError:
            exec(code, scope)
            return {"value": None}
        return {"value": eval(compiled, scope)}
    except Exception as error:
        return {"error": _error(error)}


def main(commands: int, answers: int) -> None:
    for fd in (commands, answers):
        os.set_inheritable(fd, False)
    monarch.actor.unhandled_fault_hook = _record
    scope = globals()
    lock = threading.Lock()

    def answer(number: int, code: str) -> None:
        line = json.dumps({"id": number, **_execute(scope, code)}, default=repr) + "\n"
        with lock:
            os.write(answers, line.encode())

    for line in _lines(commands):
        command = json.loads(line)
        if command["aside"]:
            threading.Thread(target=answer, args=(command["id"], command["code"]), daemon=True).start()
        else:
            answer(command["id"], command["code"])


def _lines(fd: int) -> Iterator[bytes]:
    """A plain read would sleep through a signal that came just before it; here its handler's byte wakes it."""
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    rest = b""
    while True:
        if fd not in select.select([fd, woken], [], [])[0]:
            os.read(woken, 64)
            continue
        data = os.read(fd, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from lines


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
