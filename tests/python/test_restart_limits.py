"""What waits for a start is bounded as a mailbox is. In programs of their own, for limits are set at the start."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

PRELUDE = """
import os
from monarch.actor import Actor, Backoff, ResourceExhausted, Restart, SupervisionError, endpoint, this_host
NEVER = Backoff(first_s=3600.0, max_s=3600.0, jitter=0.0)
def unhandled(failure):
    print("climbed", flush=True)
import monarch.actor
monarch.actor.unhandled_fault_hook = unhandled
class Member(Actor):
    def __init__(self):
        self.got = []
    @endpoint
    def take(self, number, payload=b""):
        self.got.append(number)
        return number
    @endpoint
    def order(self):
        return self.got
    @endpoint
    def leave(self):
        raise SystemExit(3)
def fail_rank(mesh, rank):
    try:
        mesh.slice(gpus=rank).leave.call_one().get()
    except SupervisionError:
        return
    raise AssertionError("it lives")
def fill(call):
    sent = 0
    while True:
        try:
            call(sent)
        except ResourceExhausted as error:
            return sent, error
        sent += 1
"""


@pytest.fixture
def run(run_python: Callable[..., Any]) -> Callable[..., list[str]]:
    def run(code: str, **limits: int) -> list[str]:
        env = {f"MONARCH_LIMIT_{name.upper()}": str(value) for name, value in limits.items()}
        done = run_python("-c", PRELUDE + code, env={**os.environ, **env})
        assert done.status == 0, done.err
        return list(done.out.splitlines())

    return run


DURING_A_RESTART = """
procs = this_host().spawn_procs({"gpus": 2})
mesh = procs.spawn("m", Member, restart=Restart.one_for_one(backoff=NEVER))
mesh.take.call(0).get()
fail_rank(mesh, 1)
one = mesh.slice(gpus=1)
"""


def test_the_number_of_calls_that_wait_for_a_restart_is_bounded(run: Callable[..., list[str]]) -> None:
    code = """
waiting = []
sent, error = fill(lambda number: waiting.append(one.take.call_one(number)))
print(sent, sorted(error.limits), "rank 1 of mesh 'm'" in str(error))
# A cast that finds no room at one member is sent to none.
try:
    mesh.take.broadcast(7)
except ResourceExhausted:
    print("refused")
print(mesh.slice(gpus=0).order.call_one().get())
# The other ways end as well.
try:
    one.take.call_one(1, timeout=0.0).get()
except TimeoutError:
    print("timed out")
mesh.stop().get()
for future in waiting:
    assert isinstance(future.exception(), SupervisionError)
"""
    lines = run(DURING_A_RESTART + code, mailbox_messages_max=20, send_wait_ms=50)
    names = ["mailbox_bytes_max", "mailbox_messages_max", "send_wait_ms"]
    # As a mailbox, it takes the one that fills it.
    assert lines == [f"21 {names} True", "refused", "[0]", "timed out"]


def test_the_bytes_of_what_waits_for_a_restart_are_bounded(run: Callable[..., list[str]]) -> None:
    code = """
sent, error = fill(lambda number: one.take.broadcast(number, bytes(100_000)))
print(sent, error.limits["mailbox_bytes_max"])
mesh.stop().get()
"""
    lines = run(DURING_A_RESTART + code, mailbox_bytes_max=1_000_000, send_wait_ms=50)
    assert lines == ["10 1000000"]


def test_who_waits_for_room_sends_when_the_restart_is_over_and_in_order(
    run: Callable[..., list[str]],
) -> None:
    code = """
procs = this_host().spawn_procs({"gpus": 1})
soon = Backoff(first_s=0.5, jitter=0.0)
mesh = procs.spawn("m", Member, restart=Restart.one_for_one(backoff=soon))
mesh.take.call(0).get()
fail_rank(mesh, 0)
for number in range(100):
    mesh.take.broadcast(number)
print(mesh.slice(gpus=0).order.call_one().get() == list(range(100)), mesh.incarnation)
"""
    assert run(code, mailbox_messages_max=20) == ["True 2"]


def test_calls_that_wait_for_a_spawn_are_bounded_too(run: Callable[..., list[str]]) -> None:
    code = """
os.mkfifo("gate")
def bootstrap():
    open("gate").read()
mesh = this_host().spawn_procs({"gpus": 1}, bootstrap=bootstrap).spawn("m", Member)
waiting = []
sent, error = fill(lambda number: waiting.append(mesh.take.call(number)))
print(sent, "mesh 'm', which is being started" in str(error))
open("gate", "w").close()
print([list(future.get().values()) for future in waiting] == [[number] for number in range(sent)])
"""
    assert run(code, mailbox_messages_max=20, send_wait_ms=50) == ["21 True", "True"]
