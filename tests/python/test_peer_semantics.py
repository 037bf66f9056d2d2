"""`strict_peer_semantics`: two rules of other implementations, off unless they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import EVENT_S, Failures
from monarch.actor import Actor, SupervisionError, endpoint
from monarch.config import configured
from sample_actors import Counter


@pytest.fixture
def strict() -> Iterator[None]:
    with configured(strict_peer_semantics=True):
        yield


class Sender(Actor):
    """Calls what it has stopped."""

    def __init__(self, procs: Any, takes_back: bool) -> None:
        self.procs = procs
        self.takes_back = takes_back
        self.undeliverable: list[str] = []

    @endpoint
    def call_stopped(self) -> list[str]:
        mesh = self.procs.spawn("stopped", Counter)
        mesh.stop().get()
        assert isinstance(mesh.get.call_one().exception(), SupervisionError)
        return self.undeliverable

    @endpoint
    def ping(self) -> str:
        return "pong"

    def _handle_undeliverable_message(self, message: Any) -> bool:
        self.undeliverable.append(str(message))
        return self.takes_back


def test_a_process_in_which_an_actor_failed_takes_spawns(spawn_procs: Any, failures: Failures) -> None:
    procs = spawn_procs()
    procs.spawn("failing", Counter).raise_base.call_one().exception(timeout=EVENT_S)
    failures.wait()
    again = procs.spawn("again", Counter)
    again.initialized.get(timeout=EVENT_S)
    assert again.get.call_one().get(timeout=EVENT_S) == 0


@pytest.mark.usefixtures("strict")
def test_strict_a_process_in_which_an_actor_failed_takes_no_spawns(
    spawn_procs: Any, failures: Failures
) -> None:
    procs = spawn_procs({"gpus": 2})
    beside = procs.spawn("beside", Counter)
    failing = procs.spawn("failing", Counter)
    failing.get.call().get(timeout=EVENT_S)
    failing.slice(gpus=0).raise_base.call_one().exception(timeout=EVENT_S)
    failures.wait()
    again = procs.spawn("again", Counter)
    with pytest.raises(RuntimeError, match="error spawning actor mesh: Cannot spawn new actors on mesh with"):
        again.initialized.get(timeout=EVENT_S)
    with pytest.raises(RuntimeError):
        again.get.call().get(timeout=EVENT_S)
    # Actors that are there already go on, and other processes are as before.
    assert beside.get.call().get(timeout=EVENT_S).values() == [0, 0]
    assert procs.slice(gpus=1).spawn("elsewhere", Counter).get.call_one().get(timeout=EVENT_S) == 0


def test_a_call_to_a_stopped_mesh_does_not_fail_its_sender(spawn_procs: Any, failures: Failures) -> None:
    procs = spawn_procs({"gpus": 2})
    sender = procs.slice(gpus=0).spawn("sender", Sender, procs.slice(gpus=1), False)
    assert sender.call_stopped.call_one().get(timeout=EVENT_S) == []
    assert sender.ping.call_one().get(timeout=EVENT_S) == "pong"
    mesh = procs.spawn("stopped", Counter)
    mesh.stop().get(timeout=EVENT_S)
    mesh.get.broadcast()
    with pytest.raises(SupervisionError, match="stopped"):
        mesh.get.call().get(timeout=EVENT_S)
    assert failures.seen == []


@pytest.mark.usefixtures("strict")
def test_strict_a_call_to_a_stopped_mesh_fails_its_sender(spawn_procs: Any, failures: Failures) -> None:
    procs = spawn_procs({"gpus": 2})
    sender = procs.slice(gpus=0).spawn("sender", Sender, procs.slice(gpus=1), False)
    sender.call_stopped.call_one().exception(timeout=EVENT_S)
    (failure,) = failures.wait()
    assert failure.mesh_name == "sender"
    assert "undeliverable message for stopped.get(): actor stopped: stopped by client" in failure.report()
    with pytest.raises(SupervisionError):
        sender.ping.call_one().get(timeout=EVENT_S)


@pytest.mark.usefixtures("strict")
def test_strict_a_sender_may_take_an_undeliverable_message_back(spawn_procs: Any, failures: Failures) -> None:
    procs = spawn_procs({"gpus": 2})
    sender = procs.slice(gpus=0).spawn("sender", Sender, procs.slice(gpus=1), True)
    told = sender.call_stopped.call_one().get(timeout=EVENT_S)
    assert told == ["undeliverable message for stopped.get(): actor stopped: stopped by client"]
    assert sender.ping.call_one().get(timeout=EVENT_S) == "pong"
    assert failures.seen == []


@pytest.mark.usefixtures("strict")
def test_strict_a_client_that_calls_a_stopped_mesh_meets_the_fault_hook(
    spawn_procs: Any, failures: Failures
) -> None:
    mesh = spawn_procs().spawn("stopped", Counter)
    mesh.stop().get(timeout=EVENT_S)
    with pytest.raises(SupervisionError, match="stopped"):
        mesh.get.call_one().get(timeout=EVENT_S)
    mesh.get.broadcast()
    told = failures.wait(2)
    assert all("undeliverable message for stopped.get()" in failure.report() for failure in told)
