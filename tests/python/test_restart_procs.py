"""Restart policies of process meshes: each test is named after the sentence of docs/failure-rules.md that it checks."""

from __future__ import annotations

import os
import pathlib
import signal
from typing import Any

import pytest
from conftest import Failures
from monarch.actor import Actor, Restart, context, current_rank, endpoint, this_proc
from test_restart_actors import AT_ONCE, NEVER, SOON, STRATEGIES, Member, Restarts, fails, values


def kill_rank(procs: Any, mesh: Any, rank: int) -> None:
    """Returns when a caller knows of the death."""
    waiting = mesh.slice(gpus=rank).kill_process.call_one()
    assert fails(waiting).event.kind == "signalled"


@pytest.mark.parametrize(("name", "policy", "failing", "again"), STRATEGIES)
def test_a_dead_process_is_started_again_with_those_that_the_strategy_names_and_their_actors(
    spawn_procs: Any, failures: Failures, name: str, policy: Any, failing: int, again: set[int]
) -> None:
    restarts = Restarts()
    procs = spawn_procs({"gpus": 3}, name=name, restart=policy(backoff=AT_ONCE, on_restart=restarts))
    mesh = procs.spawn("m", Member, 10)
    before = procs.pids()
    mesh.add.call(5).get()
    kill_rank(procs, mesh, failing)
    (event,) = restarts.wait()
    assert values(mesh) == [10 if rank in again else 15 for rank in range(3)]
    after = procs.pids()
    assert {rank for rank in range(3) if before[rank] != after[rank]} == again
    incarnations = [2 if rank in again else 1 for rank in range(3)]
    assert (procs.incarnation, procs.incarnations) == (2, incarnations)
    assert (mesh.incarnation, mesh.incarnations) == (2, incarnations)
    assert (event.mesh, set(event.ranks), event.incarnation) == (name, again, 2)
    assert (event.cause.rank, event.cause.kind, event.cause.code) == (failing, "signalled", 9)
    assert not failures.seen


def test_all_that_is_sent_to_a_process_waits_once_a_caller_has_met_its_end(
    spawn_procs: Any, failures: Failures
) -> None:
    procs = spawn_procs({"gpus": 1}, restart=Restart.one_for_one(backoff=AT_ONCE, max_restarts=100))
    victim, other = (procs.spawn(name, Member, 3) for name in ("victim", "other"))
    assert values(other) == [3]
    for _ in range(20):
        fails(victim.slice(gpus=0).kill_process.call_one())
        assert values(other) == [3]
        assert values(procs.spawn("new", Member, 4)) == [4]
    assert not failures.seen


class Ordered(Actor):
    @endpoint
    def number(self) -> int:
        """Larger for those that are made later."""
        return context().actor_instance.actor


def test_actors_come_back_in_the_order_of_their_spawns_behind_the_bootstrap(
    spawn_procs: Any, failures: Failures, tmp_path: pathlib.Path
) -> None:
    def bootstrap() -> None:
        (tmp_path / f"{os.getpid()}-{current_rank().rank}").touch()

    procs = spawn_procs({"gpus": 2}, bootstrap=bootstrap, restart=Restart.one_for_one(backoff=AT_ONCE))
    meshes = [procs.spawn(name, Ordered) for name in "abc"]
    victim = procs.spawn("victim", Member)

    def numbers() -> list[int]:
        return [mesh.slice(gpus=1).number.call_one().get() for mesh in meshes]

    before = numbers()
    kill_rank(procs, victim, 1)
    assert victim.slice(gpus=1).add.call_one().get() == 1
    after = numbers()
    assert after == sorted(after) and set(before).isdisjoint(after)
    (pid,) = (pid for pid in procs.slice(gpus=1).pids())
    assert (tmp_path / f"{pid}-1").exists() and len(list(tmp_path.iterdir())) == 3
    assert not failures.seen


class Placed(Member):
    @endpoint
    def of_own_process(self) -> tuple[int, int]:
        child = this_proc().spawn("child", Member, 7)
        return child.add.call_one().get(), context().actor_instance.rank.rank


def test_an_actor_that_came_back_knows_its_new_process(spawn_procs: Any, failures: Failures) -> None:
    procs = spawn_procs({"gpus": 2}, restart=Restart.one_for_one(backoff=AT_ONCE))
    mesh = procs.spawn("m", Placed)
    kill_rank(procs, mesh, 1)
    assert mesh.slice(gpus=1).of_own_process.call_one().get() == (8, 1)
    assert not failures.seen


def test_a_spawn_during_a_restart_waits_for_it(spawn_procs: Any, failures: Failures) -> None:
    procs = spawn_procs({"gpus": 2}, restart=Restart.one_for_one(backoff=SOON))
    first = procs.spawn("first", Member)
    kill_rank(procs, first, 0)
    assert values(procs.spawn("second", Member, 3)) == [3, 3]
    assert values(first) == [0, 0]
    assert not failures.seen


def test_past_the_intensity_the_deaths_of_processes_climb(spawn_procs: Any, failures: Failures) -> None:
    procs = spawn_procs({"gpus": 2}, restart=Restart.one_for_one(1, 60, AT_ONCE))
    mesh = procs.spawn("m", Member)
    kill_rank(procs, mesh, 0)
    assert values(mesh) == [0, 0]
    kill_rank(procs, mesh, 1)
    (failure,) = failures.wait()
    assert (failure.mesh_name, failure.crashed_ranks, failure.event.kind) == ("m", [1], "signalled")
    assert "restarts are given up: more than 1 within 60 s" in failure.report()
    assert mesh.slice(gpus=0).add.call_one().get() == 1


def test_a_stop_during_the_restart_of_a_process_leaves_nothing(spawn_procs: Any, failures: Failures) -> None:
    procs = spawn_procs({"gpus": 2}, restart=Restart.one_for_one(backoff=NEVER))
    mesh = procs.spawn("m", Member)
    kill_rank(procs, mesh, 0)
    waiting = mesh.add.call(1)
    procs.stop().get()
    fails(waiting)
    assert not failures.seen


def test_a_process_that_dies_while_another_is_restarted_is_restarted_too(
    spawn_procs: Any, failures: Failures
) -> None:
    procs = spawn_procs({"gpus": 3}, restart=Restart.one_for_one(5, 60, SOON))
    mesh = procs.spawn("m", Member)
    for pid in procs.pids()[:2]:
        os.kill(pid, signal.SIGKILL)
    kill_rank(procs, mesh, 2)
    assert mesh.slice(gpus=2).add.call_one().get() == 1
    assert set(procs.incarnations) <= {2, 3, 4} and not failures.seen
