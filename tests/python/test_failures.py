"""What callers and owners see when something ends: the table of failures."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

import pytest
from conftest import EVENT_S, Failures, wait_gone
from monarch.actor import ActorError, MeshFailure, SupervisionError, this_proc
from sample_actors import Cleaning, Counter, ExitingInit, FailingInit, Owner


@pytest.fixture
def counters(spawn_procs: Any) -> Any:
    return spawn_procs({"gpus": 3}).spawn("counters", Counter, 10)


def assert_alive(mesh: Any, count: int = 3) -> None:
    assert len(mesh.get.call().get(timeout=EVENT_S).values()) == count


def test_exception_after_broadcast_fails_the_actor(counters: Any, failures: Failures) -> None:
    counters.slice(gpus=1).fail.broadcast("nobody hears")
    (failure,) = failures.wait()
    assert isinstance(failure, MeshFailure)
    assert failure.mesh_name == "counters"
    assert failure.crashed_ranks == [1]
    assert "and all its descendants have failed:" in failure.report()
    assert "ValueError: nobody hears" in failure.report()
    assert "sample_actors.Counter counters{'gpus': 1/3}" in failure.report()
    assert "MeshFailure(mesh_name=counters, crashed_ranks=[1]" in str(failure)
    with pytest.raises(SupervisionError, match="and all its descendants have failed"):
        counters.get.call().get(timeout=EVENT_S)
    assert_alive(counters.slice(gpus=0), 1)


def test_base_exception_fails_the_actor(counters: Any, failures: Failures) -> None:
    with pytest.raises(SupervisionError, match="SystemExit") as caught:
        counters.slice(gpus=0).raise_base.call_one().get(timeout=EVENT_S)
    assert caught.value.endpoint == "counters.raise_base()"
    assert str(caught.value).startswith("Endpoint call counters.raise_base() failed, The actor ")
    assert failures.wait()[0].crashed_ranks == [0]
    assert_alive(counters.slice(gpus=slice(1, 3)), 2)


def test_unpicklable_exception_fails_the_actor(counters: Any, failures: Failures) -> None:
    with pytest.raises(SupervisionError, match="secret"):
        counters.slice(gpus=0).unpicklable_exception.call_one().get(timeout=EVENT_S)
    failures.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_killed_process_is_known_at_once_and_by_its_signal(
    counters: Any, failures: Failures, number: signal.Signals
) -> None:
    with pytest.raises(SupervisionError) as caught:
        counters.slice(gpus=2).die.call_one(int(number)).get(timeout=EVENT_S)
    event = caught.value.event
    assert event is not None
    assert (event.kind, event.code, event.rank) == ("signalled", int(number), 2)
    assert f"Killed(sig={int(number)})" in str(caught.value)
    assert number.name in str(caught.value)
    (failure,) = failures.wait()
    assert "the process this actor was running on failed: Killed" in failure.report()
    assert_alive(counters.slice(gpus=slice(0, 2)), 2)


def test_death_is_told_within_milliseconds(counters: Any, failures: Failures) -> None:
    victim = counters.slice(gpus=0)
    pid = victim.where.call_one().get()[0]
    future = victim.die.call_one(int(signal.SIGSTOP))
    os.kill(pid, signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises(SupervisionError):
        future.get(timeout=EVENT_S)
    # Three orders of magnitude above what it takes; only polling or a lease would come near.
    assert time.monotonic() - started < 1.0
    failures.wait()


def test_exit_status_is_told(counters: Any, failures: Failures) -> None:
    with pytest.raises(SupervisionError, match="exited with non-zero code 7") as caught:
        counters.slice(gpus=1).exit.call_one(7).get(timeout=EVENT_S)
    assert caught.value.event is not None
    assert (caught.value.event.kind, caught.value.event.code) == ("exited", 7)
    assert failures.wait()[0].crashed_ranks == [1]


def test_exit_with_status_0_is_a_stop(counters: Any, failures: Failures) -> None:
    with pytest.raises(SupervisionError, match="stopped"):
        counters.slice(gpus=1).exit.call_one(0).get(timeout=EVENT_S)
    assert_alive(counters.slice(gpus=0), 1)
    assert failures.seen == []


def test_one_death_fails_pending_calls_of_its_rank_only(counters: Any, failures: Failures) -> None:
    before = [counters.slice(gpus=i).get.call_one() for i in range(3)]
    dying = counters.slice(gpus=1).die.call_one()
    later = [counters.slice(gpus=i).get.call_one() for i in range(3)]
    with pytest.raises(SupervisionError):
        dying.get(timeout=EVENT_S)
    assert [future.get(timeout=EVENT_S) for future in before] == [10, 10, 10]
    assert later[0].get(timeout=EVENT_S) == later[2].get(timeout=EVENT_S) == 10
    with pytest.raises(SupervisionError):
        later[1].get(timeout=EVENT_S)
    failures.wait()


def test_a_failed_actor_does_not_spoil_its_process(spawn_procs: Any, failures: Failures) -> None:
    procs = spawn_procs({"gpus": 2})
    first = procs.spawn("first", Counter)
    first.fail.broadcast("gone")
    failures.wait(2)
    again = procs.spawn("first", Counter, 5)
    assert again.get.call().get(timeout=EVENT_S).values() == [5, 5]


def test_abort_fails_the_actor(counters: Any, failures: Failures) -> None:
    with contextlib.suppress(SupervisionError):  # The reply may lose the race.
        counters.slice(gpus=0).abort.call_one("enough").get(timeout=EVENT_S)
    assert "actor explicitly aborted due to: enough" in failures.wait()[0].report()
    counters.slice(gpus=1).abort.broadcast(None)
    assert "(no reason provided)" in failures.wait(2)[1].report()


def test_init_that_raises_fails_its_rank(spawn_procs: Any, failures: Failures) -> None:
    mesh = spawn_procs({"gpus": 3}).spawn("devices", FailingInit, 1)
    mesh.initialized.get(timeout=EVENT_S)
    with pytest.raises(SupervisionError, match="no such device"):
        mesh.ping.call().get(timeout=EVENT_S)
    assert mesh.slice(gpus=2).ping.call_one().get(timeout=EVENT_S) == 0
    (failure,) = failures.wait()
    assert failure.crashed_ranks == [1]
    assert "no such device" in str(failure)


def test_init_that_exits_names_rank_and_status(spawn_procs: Any, failures: Failures) -> None:
    mesh = spawn_procs({"gpus": 2}).spawn("leavers", ExitingInit, 1, 9)
    with pytest.raises(SupervisionError, match="exited with non-zero code 9") as caught:
        mesh.ping.call().get(timeout=EVENT_S)
    assert caught.value.event is not None
    assert (caught.value.event.rank, caught.value.event.code) == (1, 9)
    failures.wait()


# --- owners ---


def test_an_owner_that_handles_goes_on(spawn_procs: Any, failures: Failures) -> None:
    owner = spawn_procs().spawn("owner", Owner, True)
    owner.spawn.call_one(2).get(timeout=EVENT_S)
    assert owner.try_call.call_one("fail", "only told").get(timeout=EVENT_S) == "ActorError"
    assert owner.try_call.call_one("raise_base").get(timeout=EVENT_S) == "SupervisionError"
    while len(owner.reports.call_one().get(timeout=EVENT_S)) < 2:
        pass
    assert failures.seen == []
    assert owner.try_call.call_one("get").get(timeout=EVENT_S) == "SupervisionError"


def test_an_owner_that_does_not_handle_fails_with_the_cause(spawn_procs: Any, failures: Failures) -> None:
    owner = spawn_procs().spawn("owner", Owner, False)
    inner = owner.spawn.call_one(1).get(timeout=EVENT_S)
    pid = inner.where.call_one().get(timeout=EVENT_S)[0]
    inner.fail.broadcast("deep down")
    (failure,) = failures.wait()
    report = failure.report()
    assert failure.mesh_name == "owner"
    assert "did not handle a supervision event from its child" in report
    assert "ValueError: deep down" in report
    assert "sample_actors.Counter inner" in report
    # Whoever fails takes along what it owns: the inner process too.
    assert wait_gone(pid, EVENT_S)
    with pytest.raises(SupervisionError):
        owner.reports.call_one().get(timeout=EVENT_S)


def test_a_death_of_the_owners_process_ends_what_it_owned(spawn_procs: Any, failures: Failures) -> None:
    owner = spawn_procs().spawn("owner", Owner, True)
    inner = owner.spawn.call_one(1).get(timeout=EVENT_S)
    pid = inner.where.call_one().get(timeout=EVENT_S)[0]
    os.kill(owner.pid.call_one().get(timeout=EVENT_S), signal.SIGKILL)
    failures.wait()
    assert wait_gone(pid, EVENT_S)


# --- stopping ---


def test_stop_runs_cleanup_and_calls_fail_afterwards(
    spawn_procs: Any, failures: Failures, tmp_path: Any
) -> None:
    mesh = spawn_procs().spawn("cleaning", Cleaning, str(tmp_path / "out"))
    assert mesh.ping.call_one().get(timeout=EVENT_S) == "pong"
    mesh.stop("no more work").get(timeout=EVENT_S)
    assert (tmp_path / "out").read_text() == "cleanup False False\n"
    with pytest.raises(SupervisionError, match=r"(?s)has status: .*stopped: no more work"):
        mesh.ping.call_one().get(timeout=EVENT_S)
    mesh.stop().get(timeout=EVENT_S)
    assert failures.seen == []


def test_cleanup_of_a_failed_actor_gets_the_error(
    spawn_procs: Any, failures: Failures, tmp_path: Any
) -> None:
    mesh = spawn_procs().spawn("cleaning", Cleaning, str(tmp_path / "out"))
    mesh.fail.broadcast()
    failures.wait()
    assert (tmp_path / "out").read_text() == "cleanup True True\n"


def test_proc_mesh_stop_ends_processes_and_refuses_spawns(
    spawn_procs: Any, failures: Failures, tmp_path: Any
) -> None:
    procs = spawn_procs({"gpus": 2})
    cleaning = procs.spawn("cleaning", Cleaning, str(tmp_path / "out"))
    counters = procs.spawn("counters", Counter)
    pids = [pid for pid, *_ in counters.where.call().get(timeout=EVENT_S).values()]
    assert pids == procs.pids()
    cleaning.ping.call().get(timeout=EVENT_S)
    with pytest.raises(ValueError, match="ProcMesh is not owned; must be stopped by an owner"):
        procs.slice(gpus=0).stop()
    procs.stop().get(timeout=EVENT_S)
    assert all(wait_gone(pid, 0) for pid in pids)
    assert (tmp_path / "out").read_text() == "cleanup False False\n" * 2
    with pytest.raises(SupervisionError):
        counters.get.call().get(timeout=EVENT_S)
    with pytest.raises(RuntimeError, match="`ProcMesh` has already been stopped"):
        procs.spawn("late", Counter).initialized.get(timeout=EVENT_S)
    procs.stop().get(timeout=EVENT_S)
    assert failures.seen == []


def test_actors_in_the_clients_process(failures: Failures) -> None:
    mesh = this_proc().spawn("here", Counter, 1)
    assert mesh.add.call_one(2).get(timeout=EVENT_S) == 3
    assert mesh.where.call_one().get(timeout=EVENT_S)[0] == os.getpid()
    with pytest.raises(ActorError):
        mesh.fail.call_one("x").get(timeout=EVENT_S)
    mesh.stop().get(timeout=EVENT_S)
    with pytest.raises(SupervisionError):
        mesh.get.call_one().get(timeout=EVENT_S)
