"""Future.cancel(): the caller is free at once, whatever the endpoint does."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from monarch.actor import Actor, CallCancelledError, endpoint, this_host


class Gate(Actor):
    @endpoint
    def hold(self, path: str) -> str:
        with Path(path).open() as gate:  # A pipe: until somebody opens the other end.
            return gate.read()

    @endpoint
    def echo(self, value: int) -> int:
        return value


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """A mesh whose actor is busy, and the future of its call."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    procs = this_host().spawn_procs({"gpus": 1})
    gate = procs.spawn("gate", Gate)
    future = gate.hold.call_one(str(path))
    yield gate, future
    path.write_text("open")
    assert gate.echo.call_one(1).get(timeout=60) == 1  # The actor lives on.
    procs.stop().get(timeout=60)


def test_cancel_wakes_a_thread_that_waits(held: Any) -> None:
    _, future = held
    errors: list[Any] = []
    thread = threading.Thread(target=lambda: errors.append(future.exception()))
    thread.start()
    assert future.cancel()
    thread.join(timeout=60)
    assert [type(error) for error in errors] == [CallCancelledError]


def test_cancel_wakes_a_coroutine_that_waits(held: Any) -> None:
    _, future = held

    async def main() -> None:
        waiting = future.as_asyncio()
        future.cancel()
        with pytest.raises(CallCancelledError):
            await asyncio.wait_for(waiting, 60)

    asyncio.run(main())


def test_cancel_may_be_repeated(held: Any) -> None:
    _, future = held
    assert future.cancel()
    assert future.cancel()
    with pytest.raises(CallCancelledError):
        future.get(timeout=60)


def test_cancel_of_a_done_future_changes_nothing(held: Any) -> None:
    _, future = held
    future.cancel()
    procs = this_host().spawn_procs({"gpus": 1})
    other = procs.spawn("other", Gate).echo.call_one(2)
    assert other.get(timeout=60) == 2
    assert not other.cancel()
    assert other.get() == 2
    procs.stop().get(timeout=60)
