"""Controllers: one actor for each name, in the client's process."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from conftest import EVENT_S, Failures
from monarch._actor import controller
from monarch._actor.process import process
from monarch.actor import Actor, ActorError, endpoint, get_or_spawn_controller
from sample_actors import Counter


class Asks(Actor):
    @endpoint
    def ask(self, name: str) -> tuple[int, int]:
        controller = get_or_spawn_controller(name, Counter, 100).get()
        return controller.where.call_one().get()[0], controller.add.call_one(1).get()


def test_one_for_each_name_in_the_clients_process(spawn_procs: Any, failures: Failures) -> None:
    asks = spawn_procs({"gpus": 3}).spawn("asks", Asks)
    answers = asks.ask.call("shared").get(timeout=EVENT_S).values()
    assert {pid for pid, _ in answers} == {os.getpid()}
    assert sorted(value for _, value in answers) == [101, 102, 103]
    here = get_or_spawn_controller("shared", Counter, 5).get(timeout=EVENT_S)
    assert here.get.call_one().get(timeout=EVENT_S) == 103
    other = get_or_spawn_controller("other", Counter, 5).get(timeout=EVENT_S)
    assert other.get.call_one().get(timeout=EVENT_S) == 5


def test_a_failed_controller_is_recorded_and_others_go_on(failures: Failures) -> None:
    failing = get_or_spawn_controller("failing", Counter).get(timeout=EVENT_S)
    with pytest.raises(RuntimeError):
        failing.raise_base.call_one().get(timeout=EVENT_S)
    with pytest.raises(ActorError, match="Failure on failing: "):
        while True:  # Until the failure has come to the one who keeps the controllers.
            get_or_spawn_controller("failing", Counter).get(timeout=EVENT_S)
    fresh = get_or_spawn_controller("fresh", Counter, 2).get(timeout=EVENT_S)
    assert fresh.get.call_one().get(timeout=EVENT_S) == 2
    assert failures.seen == []


def test_nobody_finds_the_controllers_started_before_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    sending, go = threading.Event(), threading.Event()

    def slow(*args: object) -> None:
        sending.set()
        assert go.wait(EVENT_S)

    monkeypatch.setattr(controller, "_send_create", slow)
    monkeypatch.setattr(controller, "_started_in", None)
    threads = [threading.Thread(target=controller.start_controllers, args=(process(),)) for _ in range(2)]
    threads[0].start()
    assert sending.wait(EVENT_S)
    threads[1].start()
    threads[1].join(0.1)
    assert threads[1].is_alive()
    go.set()
    for thread in threads:
        thread.join(EVENT_S)
        assert not thread.is_alive()
