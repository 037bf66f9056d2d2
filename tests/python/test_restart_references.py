"""References to meshes with a restart policy, in other actors: named after the sentences of docs/failure-rules.md."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
from typing import Any

import pytest
from conftest import EVENT_S, Failures
from monarch.actor import Actor, Restart, endpoint, this_proc
from test_restart_actors import AT_ONCE, NEVER, SOON, Member, Restarts, fail_rank, fails, values
from test_restart_procs import kill_rank


class Holder(Actor):
    def __init__(self, mesh: Any = None) -> None:
        self.mesh = mesh
        self.first = values(mesh) if mesh is not None else []
        self.waiting: Any = None

    @endpoint
    def take(self, mesh: Any) -> None:
        self.mesh = mesh
        gc.collect()  # A mesh and its endpoints refer to each other.

    @endpoint
    def values(self) -> list[int]:
        return values(self.mesh)

    @endpoint
    def of_start(self) -> list[int]:
        return self.first

    @endpoint
    def incarnations(self) -> tuple[int, list[int]]:
        return self.mesh.incarnation, self.mesh.incarnations

    @endpoint
    def own(self, policy: Restart) -> Any:
        self.mesh = this_proc().spawn("owned", Member, 3, restart=policy)
        return self.mesh

    @endpoint
    def own_value(self) -> int:
        return self.mesh.add.call_one().get()

    @endpoint
    def expect_news(self) -> None:
        self.news = threading.Event()
        self.mesh._members().watcher = lambda change: self.news.set()

    @endpoint
    def begin(self, rank: int) -> None:
        """A call, once the next news are here."""
        assert self.news.wait(EVENT_S)
        self.waiting = self.mesh.slice(gpus=rank).add.call_one(5)

    @endpoint
    def result(self) -> int:
        return self.waiting.get(timeout=EVENT_S)

    @endpoint
    def spawn_on(self, procs: Any) -> list[int]:
        return values(procs.spawn("by_holder", Member, 7))

    @endpoint
    def kill_process(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def holder(spawn_procs: Any) -> Any:
    return spawn_procs({"hosts": 1}).spawn("holder", Holder)


def of(holder: Any) -> list[int]:
    return holder.values.call_one().get(timeout=EVENT_S)


def test_a_reference_in_another_actor_goes_on_working(
    spawn_procs: Any, failures: Failures, holder: Any
) -> None:
    restarts = Restarts()
    policy = Restart.one_for_one(backoff=AT_ONCE, on_restart=restarts)
    mesh = spawn_procs({"gpus": 2}).spawn("m", Member, 10, restart=policy)
    holder.take.call_one(mesh).get()
    mesh.add.call(5).get()
    assert of(holder) == [15, 15]
    for count in range(1, 4):
        fail_rank(mesh, 1)
        restarts.wait(count)
        assert of(holder) == [15, 10]
        assert holder.incarnations.call_one().get() == (count + 1, [1, count + 1])
    assert not failures.seen


def test_a_reference_follows_the_restarts_of_processes(
    spawn_procs: Any, failures: Failures, holder: Any
) -> None:
    restarts = Restarts()
    procs = spawn_procs({"gpus": 2}, restart=Restart.one_for_one(backoff=AT_ONCE, on_restart=restarts))
    mesh = procs.spawn("m", Member, 10)
    holder.take.call_one(mesh).get()
    mesh.add.call(5).get()
    kill_rank(procs, mesh, 0)
    restarts.wait()
    assert of(holder) == [10, 15]
    assert holder.spawn_on.call_one(procs).get() == [7, 7]
    assert not failures.seen


def test_the_arguments_of_the_spawn_may_refer_to_a_mesh_that_was_restarted_since(
    spawn_procs: Any, failures: Failures
) -> None:
    restarts = Restarts()
    policy = Restart.one_for_one(backoff=AT_ONCE, on_restart=restarts)
    mesh = spawn_procs({"gpus": 2}).spawn("m", Member, 10, restart=policy)
    kept = pickle.dumps(mesh)
    procs = spawn_procs({"hosts": 1}, restart=Restart.one_for_one(backoff=AT_ONCE))
    holder = procs.spawn("holder", Holder, mesh)
    holder.of_start.call_one().get()
    fail_rank(mesh, 0)
    restarts.wait()
    killed = procs.spawn("killer", Holder)
    fails(killed.kill_process.call_one())
    assert holder.of_start.call_one().get(timeout=EVENT_S) == [10, 10]
    assert values(pickle.loads(kept)) == [10, 10]
    assert not failures.seen


def test_a_call_by_a_reference_during_a_restart_waits_for_the_new_member(
    spawn_procs: Any, failures: Failures, holder: Any
) -> None:
    mesh = spawn_procs({"gpus": 2}).spawn("m", Member, 10, restart=Restart.one_for_one(backoff=SOON))
    holder.take.call_one(mesh).get()
    assert of(holder) == [10, 10]
    holder.expect_news.call_one().get()
    fail_rank(mesh, 1)
    holder.begin.call_one(1).get()
    assert holder.result.call_one().get(timeout=EVENT_S) == 15
    assert of(holder) == [10, 15]
    assert not failures.seen


def test_a_call_by_a_reference_fails_when_the_restart_is_given_up(
    spawn_procs: Any, failures: Failures, holder: Any
) -> None:
    mesh = spawn_procs({"gpus": 2}).spawn("m", Member, 10, restart=Restart.one_for_one(backoff=NEVER))
    holder.take.call_one(mesh).get()
    assert of(holder) == [10, 10]
    holder.expect_news.call_one().get()
    fail_rank(mesh, 1)
    holder.begin.call_one(1).get()
    mesh.stop("no more").get()
    error = pytest.raises(Exception, holder.result.call_one().get, timeout=EVENT_S)
    assert "no more" in str(error.value)
    assert not failures.seen


def test_a_call_by_a_reference_fails_when_the_owner_ends_during_a_restart(
    spawn_procs: Any, failures: Failures, holder: Any
) -> None:
    owned = holder.own.call_one(Restart.one_for_one(backoff=NEVER)).get()
    assert owned.add.call_one().get() == 4
    fails(owned.leave.call_one())
    waiting = owned.add.call_one()
    fails(holder.kill_process.call_one())
    assert "timed out reaching controller" in str(fails(waiting))
    failures.wait()


def test_references_of_one_process_share_what_they_know(spawn_procs: Any, failures: Failures) -> None:
    mesh = spawn_procs({"gpus": 2}).spawn("m", Member, 10, restart=Restart.one_for_one(backoff=AT_ONCE))
    again = pickle.loads(pickle.dumps(mesh))
    assert again._members() is mesh._members()
    fail_rank(mesh, 1)
    assert values(again) == [10, 10]
    assert again.incarnations == [1, 2]


def test_whoever_holds_no_reference_any_more_is_told_no_more(
    spawn_procs: Any, failures: Failures, holder: Any
) -> None:
    restarts = Restarts()
    policy = Restart.one_for_one(max_restarts=10, backoff=AT_ONCE, on_restart=restarts)
    mesh = spawn_procs({"gpus": 1}).spawn("m", Member, 10, restart=policy)
    others = spawn_procs({"hosts": 1})
    victim = others.spawn("victim", Holder)
    for one in (holder, victim):
        one.take.call_one(mesh).get()
        assert of(one) == [10]
    holders = mesh._members().watcher
    assert len(holders._holders) == 2
    holder.take.call_one(None).get()
    fails(victim.kill_process.call_one())
    failures.wait()
    left = threading.Event()
    discard = holders.discard
    holders.discard = lambda one: (discard(one), left.set())
    fail_rank(mesh, 0)
    restarts.wait()
    assert left.wait(EVENT_S)
    assert not holders._holders


def test_only_meshes_with_a_policy_are_followed(spawn_procs: Any, holder: Any) -> None:
    mesh = spawn_procs({"gpus": 2}).spawn("m", Member, 10)
    holder.take.call_one(mesh).get()
    assert of(holder) == [10, 10]
    assert mesh._members().source is None
