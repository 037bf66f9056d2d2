"""`__cleanup__`: when it runs, and what its failures and its time limit mean."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import Any

from conftest import EVENT_S, Failures
from monarch.actor import Actor, Channel, Port, endpoint


class RaisingCleanup(Actor):
    @endpoint
    def ping(self) -> int:
        return 1

    def __cleanup__(self, exc: Exception | None) -> None:
        raise OSError("cannot clean up")


class HangingCleanup(Actor):
    @endpoint
    def ping(self) -> int:
        return 1

    def __cleanup__(self, exc: Exception | None) -> None:
        threading.Event().wait()


class HangingAsyncCleanup(Actor):
    @endpoint
    async def ping(self) -> int:
        return 1

    async def __cleanup__(self, exc: Exception | None) -> None:
        await asyncio.Event().wait()


class NoEndpoints(Actor):
    def __init__(self, path: str, made: Port[None]) -> None:
        self.path = path
        made.send(None)

    async def __cleanup__(self, exc: Exception | None) -> None:
        await asyncio.sleep(0)
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(repr(exc))


def test_a_cleanup_that_raises_at_a_stop_is_a_failure(spawn_procs: Any, failures: Failures) -> None:
    mesh = spawn_procs().spawn("raising", RaisingCleanup)
    mesh.ping.call_one().get(timeout=EVENT_S)
    mesh.stop().get(timeout=EVENT_S)
    assert "OSError: cannot clean up" in failures.wait()[0].report()


def test_a_cleanup_beyond_its_limit_counts_the_same_sync_and_async(
    spawn_procs: Any, failures: Failures
) -> None:
    procs = spawn_procs()
    meshes = [procs.spawn("slow", cls) for cls in (HangingCleanup, HangingAsyncCleanup)]
    for mesh in meshes:
        mesh.ping.call_one().get(timeout=EVENT_S)
    references = [pickle.loads(pickle.dumps(mesh)) for mesh in meshes]
    for stop in [mesh.stop("enough") for mesh in meshes]:
        stop.get(timeout=EVENT_S)
    for reference in references:
        error = reference.ping.call_one().exception(timeout=EVENT_S)
        assert "has status: stopped: enough (its __cleanup__ did not end within 3 s)" in str(error)
    assert failures.seen == []


def test_the_hooks_of_a_class_without_endpoints_may_be_async(
    spawn_procs: Any, failures: Failures, tmp_path: Any
) -> None:
    out = tmp_path / "out"
    port, made = Channel[None].open()
    mesh = spawn_procs().spawn("none", NoEndpoints, str(out), port)
    made.recv().get(timeout=EVENT_S)
    mesh.stop().get(timeout=EVENT_S)
    assert out.read_text() == "None"
