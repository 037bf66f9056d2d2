"""Restart policies of process meshes: each test is named after the sentence of docs/failure-rules.md that it checks."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

import pytest
from conftest import EVENT_S, Failures
from monarch._actor.process import process
from monarch.actor import (
    Actor,
    ActorError,
    Restart,
    context,
    current_rank,
    endpoint,
    this_host,
    this_proc,
)
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


class Boss(Actor):
    """Owns processes with a policy."""

    def __init__(self, policy: Restart) -> None:
        self.procs = this_host().spawn_procs({"gpus": 2}, name="below", restart=policy)
        self.mesh = self.procs.spawn("members", Member, 3)
        self.climbed: list[tuple[str, str]] = []

    @endpoint
    def kill(self, rank: int) -> None:
        kill_rank(self.procs, self.mesh, rank)

    @endpoint
    def look(self) -> tuple[list[int], int, list[int]]:
        return values(self.mesh), self.procs.incarnation, self.mesh.incarnations

    @endpoint
    def failures(self) -> list[tuple[str, str]]:
        return self.climbed

    def __supervise__(self, failure: Any) -> bool:
        self.climbed.append((failure.mesh_name, failure.report()))
        return True


def test_processes_that_an_actor_spawned_are_restarted_as_the_clients(
    spawn_procs: Any, failures: Failures
) -> None:
    boss = spawn_procs().spawn("boss", Boss, Restart.one_for_one(2, 60, AT_ONCE))
    assert boss.look.call_one().get() == ([3, 3], 1, [1, 1])
    for incarnation in (2, 3):
        boss.kill.call_one(1).get()
        assert boss.look.call_one().get() == ([3, 3], incarnation, [1, incarnation])
    assert boss.failures.call_one().get() == []
    boss.kill.call_one(1).get()
    with pytest.raises(ActorError):
        boss.look.call_one().get()
    ((mesh, report),) = boss.failures.call_one().get()
    assert mesh == "members" and "restarts are given up: more than 2 within 60 s" in report
    assert not failures.seen


def tree() -> tuple[str, list[dict[str, Any]]]:
    """What `monarchctl` shows of this session: its part of the text, and its actors as JSON."""
    command = [str(pathlib.Path(sys.executable).parent / "monarchctl"), "tree"]
    session = process().runtime.session
    text = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_S).stdout
    shown = json.loads(
        subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=EVENT_S).stdout
    )
    sessions = [
        one for daemon in shown["daemons"] if daemon["answered"] for one in daemon["tree"]["sessions"]
    ]
    (actors,) = (one["actors"] for one in sessions if one["session"] == session)
    (part,) = (part for part in text.split("(session ")[1:] if part.startswith(session[:8]))
    return part, actors


def test_monarchctl_shows_policies_incarnations_restarts_and_the_last_cause(
    spawn_procs: Any, failures: Failures
) -> None:
    restarts = Restarts()
    procs = spawn_procs({"gpus": 2}, name="shown", restart=Restart.one_for_one(5, 60, AT_ONCE, restarts))
    along = procs.spawn("along", Member)
    own = procs.spawn("own", Member, restart=Restart.one_for_all(1, 30, AT_ONCE, restarts))
    assert values(along) == values(own) == [0, 0]
    text, _ = tree()
    assert "last cause" not in text and "monarch.Restarter" not in text
    assert "procs shown: 2 ready  (incarnation 1, 0 restarts by one_for_one, at most 5 within 60 s)" in text
    assert (
        "test_restart_actors.Member  (incarnation 1, 0 restarts by one_for_all, at most 1 within 30 s)"
        in text
    )
    kill_rank(procs, along, 1)
    restarts.wait()
    assert values(along) == values(own) == [0, 0]
    fails(own.slice(gpus=0).leave.call_one())
    restarts.wait(2)
    assert values(own) == [0, 0]
    text, actors = tree()
    assert "(incarnation 2, 1 restart by one_for_one, at most 5 within 60 s)" in text
    assert "actors along: test_restart_actors.Member  (incarnation 2, with its processes)" in text
    assert "(incarnation 3, 1 restart by one_for_all, at most 1 within 30 s)" in text
    assert "of mesh shown rank 1" in text and "killed by signal 9" in text
    shown = {one["restarts"]["mesh"]: one["restarts"] for one in actors if "restarts" in one}
    assert (shown["shown"]["of_procs"], shown["own"]["of_procs"]) == (True, False)
    assert shown["own"]["cause"]["kind"] == "FAILURE_KIND_EXCEPTION" and not shown["own"]["given_up"]
    fails(own.slice(gpus=0).leave.call_one())
    failures.wait()
    assert "1 restart by one_for_all, at most 1 within 30 s, given up)" in tree()[0]
    own.stop().get()
    assert "one_for_all" not in tree()[0]
