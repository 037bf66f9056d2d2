"""The hook for failures that nobody handled, as programs use it."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest
from conftest import EVENT_S
from monarch.actor import Actor, this_host


class Failing(Actor):
    def __init__(self) -> None:
        raise ValueError("no start")


@pytest.mark.parametrize("before", [False, True], ids=["plain", "second_loop"])
def test_a_loop_that_waits_for_what_the_hook_sets_goes_on_at_once(
    monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    async def run() -> None:
        faulted = asyncio.Event()
        monkeypatch.setattr("monarch.actor.unhandled_fault_hook", lambda failure: faulted.set())
        loop = asyncio.get_running_loop()
        timer = loop.call_later(EVENT_S, lambda: None)
        procs = this_host().spawn_procs()
        procs.spawn("failing", Failing)
        await faulted.wait()
        seen_at = loop.time()
        timer.cancel()
        await procs.stop()
        assert seen_at < timer.when(), "the loop saw it at its next timer"

    for _ in range(1 + before):
        asyncio.run(run())


PROGRAM = """\
import atexit, threading
from monarch.actor import Actor, endpoint, this_host

class Trainer(Actor):
    @endpoint
    def fail(self):
        raise ValueError("as asked")

atexit.register(print, "at exit")
trainers = this_host().spawn_procs().spawn("trainers", Trainer)
trainers.fail.broadcast()
{wait}
"""


@pytest.mark.parametrize(
    "wait", ["threading.Event().wait(60); print('not reached')", ""], ids=["waiting", "ending"]
)
def test_a_program_that_ignores_sigint_ends_with_its_exit_handlers(run_python: Any, wait: str) -> None:
    if not wait:
        # The failure comes while the main thread ends by itself, at any moment of that.
        wait = "trainers.fail.call().exception()"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = run_python("-c", PROGRAM.format(wait=wait))
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.out == "at exit\n"
    if "not reached" in wait:
        assert done.status == 1
        assert "as asked" in done.err
