"""Restart policies of actor meshes: each test is named after the sentence of docs/failure-rules.md that it checks."""

from __future__ import annotations

import os
import pathlib
import pickle
import signal
import threading
from typing import Any

import pytest
from conftest import EVENT_S, Failures
from monarch.actor import (
    Actor,
    Backoff,
    Restart,
    RestartEvent,
    SupervisionError,
    context,
    current_rank,
    endpoint,
    this_proc,
)

AT_ONCE = Backoff(first_s=0.0)
SOON = Backoff(first_s=0.3, jitter=0.0)
# Longer than any test waits: the restart does not come.
NEVER = Backoff(first_s=3600.0, max_s=3600.0, jitter=0.0)


class Member(Actor):
    def __init__(self, start: int = 0, starts: str = "", good_starts: int = 1000) -> None:
        self.value = start
        if starts:
            with open(f"{starts}-{current_rank().rank}", "a") as file:
                file.write("x")
            if os.path.getsize(file.name) > good_starts:
                raise ValueError("this start fails")

    @endpoint
    def add(self, more: int = 1) -> int:
        self.value += more
        return self.value

    @endpoint
    def who(self) -> tuple[int, int, int]:
        """Its value, its incarnation, and one number for each object."""
        return self.value, context().actor_instance.incarnation, id(self)

    @endpoint
    def leave(self) -> None:
        raise SystemExit(3)

    @endpoint
    def leave_if(self, rank: int) -> None:
        if context().actor_instance.rank.rank == rank:
            raise SystemExit(3)

    @endpoint
    def stop_itself(self) -> None:
        context().actor_instance.stop("enough")

    @endpoint
    def kill_process(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class AsyncMember(Actor):
    def __init__(self, start: int = 0) -> None:
        self.value = start

    @endpoint
    async def add(self, more: int = 1) -> int:
        self.value += more
        return self.value

    @endpoint
    async def leave(self) -> None:
        raise SystemExit(3)


class Restarts:
    """An `on_restart` that keeps the events."""

    def __init__(self) -> None:
        self.seen: list[RestartEvent] = []
        self._changed = threading.Condition()

    def __call__(self, event: RestartEvent) -> None:
        with self._changed:
            self.seen.append(event)
            self._changed.notify_all()

    def wait(self, count: int = 1) -> list[RestartEvent]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.seen) >= count, EVENT_S), self.seen
            return list(self.seen)


def fails(future: Any, text: str = ".") -> SupervisionError:
    with pytest.raises(SupervisionError, match=text) as caught:
        future.get(timeout=EVENT_S)
    return caught.value


def values(mesh: Any) -> list[int]:
    return list(mesh.add.call(0).get(timeout=EVENT_S).values())


def fail_rank(mesh: Any, rank: int) -> None:
    fails(mesh.slice(gpus=rank).leave.call_one())


STRATEGIES = [
    ("one_for_one", Restart.one_for_one, 1, {1}),
    ("one_for_all", Restart.one_for_all, 1, {0, 1, 2}),
    ("rest_for_one", Restart.rest_for_one, 1, {1, 2}),
]


@pytest.mark.parametrize(("name", "policy", "failing", "again"), STRATEGIES)
def test_a_failed_member_is_made_again_with_those_that_the_strategy_names(
    spawn_procs: Any, failures: Failures, name: str, policy: Any, failing: int, again: set[int]
) -> None:
    restarts = Restarts()
    mesh = spawn_procs({"gpus": 3}).spawn(
        name, Member, start=10, restart=policy(backoff=AT_ONCE, on_restart=restarts)
    )
    assert values(mesh.slice(gpus=slice(0, 3))) == [10, 10, 10]
    mesh.add.call(5).get()
    fail_rank(mesh, failing)
    (event,) = restarts.wait()
    assert values(mesh) == [10 if rank in again else 15 for rank in range(3)]
    incarnations = [2 if rank in again else 1 for rank in range(3)]
    assert [who[1] for who in mesh.who.call().get().values()] == incarnations
    assert (mesh.incarnation, mesh.incarnations) == (2, incarnations)
    assert mesh.slice(gpus=2).incarnations == incarnations[2:]
    assert (event.mesh, set(event.ranks), event.incarnation) == (name, again, 2)
    assert (event.cause.rank, event.cause.kind) == (failing, "exception")
    assert not failures.seen


def test_the_mesh_and_its_slices_go_on_working_however_often(spawn_procs: Any, failures: Failures) -> None:
    mesh = spawn_procs({"gpus": 2}).spawn("m", Member, restart=Restart.one_for_one(10, backoff=AT_ONCE))
    one = mesh.slice(gpus=1)
    for round in range(5):
        assert one.add.call_one().get(timeout=EVENT_S) == 1
        fails(one.leave.call_one())
        assert values(mesh) == [0, 0]
        assert mesh.incarnation == round + 2
    assert not failures.seen


def test_what_waited_for_the_old_member_fails_with_its_death_and_the_new_one_never_sees_it(
    spawn_procs: Any,
) -> None:
    mesh = spawn_procs().spawn("m", Member, restart=Restart.one_for_one(backoff=AT_ONCE))
    mesh.add.call_one(0).get()
    death = mesh.leave.call_one()
    behind = [mesh.add.call_one(100) for _ in range(20)]
    for future in (death, *behind):
        assert fails(future).event.kind == "exception"
    assert mesh.add.call_one(1).get(timeout=EVENT_S) == 1


def test_a_call_during_a_restart_waits_for_the_new_member(spawn_procs: Any) -> None:
    mesh = spawn_procs({"gpus": 2}).spawn("m", Member, restart=Restart.one_for_one(backoff=SOON))
    values(mesh)
    fail_rank(mesh, 0)
    calls = [mesh.slice(gpus=0).add.call_one() for _ in range(3)]
    mesh.add.broadcast(10)
    whole = mesh.add.call(0)
    assert [call.get(timeout=EVENT_S) for call in calls] == [1, 2, 3]
    assert list(whole.get(timeout=EVENT_S).values()) == [13, 10]


def test_the_arguments_of_a_call_that_waits_are_those_of_the_call(spawn_procs: Any) -> None:
    class Summing(Member):
        @endpoint
        def sum(self, data: Any) -> int:
            return sum(memoryview(data)[:4])

    mesh = spawn_procs().spawn("m", Summing, restart=Restart.one_for_one(backoff=SOON))
    fails(mesh.leave.call_one())
    data = bytearray(b"\1" * 100_000)
    waiting = mesh.sum.call_one(pickle.PickleBuffer(data))
    data[:] = b"\5" * len(data)
    assert waiting.get(timeout=EVENT_S) == 4


def test_members_that_are_not_restarted_are_not_waited_for(spawn_procs: Any) -> None:
    mesh = spawn_procs({"gpus": 2}).spawn("m", Member, restart=Restart.one_for_one(backoff=NEVER))
    values(mesh)
    fail_rank(mesh, 0)
    assert mesh.slice(gpus=1).add.call_one().get(timeout=EVENT_S) == 1
    waiting = mesh.add.call(1)
    assert mesh.slice(gpus=1).add.call_one(0).get(timeout=EVENT_S) == 2
    with pytest.raises(TimeoutError):
        waiting.get(timeout=0.2)


def test_past_the_intensity_the_failure_climbs_as_without_a_policy(
    spawn_procs: Any, failures: Failures
) -> None:
    mesh = spawn_procs({"gpus": 2}).spawn("m", Member, restart=Restart.one_for_one(1, 60, AT_ONCE))
    values(mesh)
    fail_rank(mesh, 1)
    assert values(mesh) == [0, 0]
    fail_rank(mesh, 1)
    (failure,) = failures.wait()
    assert (failure.mesh_name, failure.crashed_ranks) == ("m", [1])
    assert "restarts are given up: more than 1 within 60 s" in failure.report()
    fails(mesh.slice(gpus=1).add.call_one())
    assert mesh.slice(gpus=0).add.call_one().get(timeout=EVENT_S) == 1
    fail_rank(mesh, 0)
    assert [f.crashed_ranks for f in failures.wait(2)] == [[1], [0]]


def test_what_waits_for_a_restart_that_is_given_up_fails_with_the_last_failure(
    spawn_procs: Any, failures: Failures, tmp_path: pathlib.Path
) -> None:
    policy = Restart.one_for_one(2, 60, Backoff(first_s=0.2, factor=1.0, jitter=0.0))
    starts = str(tmp_path / "starts")
    mesh = spawn_procs({"gpus": 1}).spawn("m", Member, starts=starts, good_starts=1, restart=policy)
    values(mesh)
    fail_rank(mesh, 0)
    (failure,) = failures.wait()
    assert "this start fails" in failure.report() and "given up" in failure.report()
    assert os.path.getsize(f"{starts}-0") == 3
    fails(mesh.add.call_one(), "this start fails")


def test_an_init_that_raises_counts_as_any_failure(
    spawn_procs: Any, failures: Failures, tmp_path: pathlib.Path
) -> None:
    restarts = Restarts()
    policy = Restart.one_for_one(1, 60, AT_ONCE, restarts)
    mesh = spawn_procs().spawn("m", Member, starts=str(tmp_path / "s"), good_starts=0, restart=policy)
    (failure,) = failures.wait()
    assert "this start fails" in failure.report()
    assert os.path.getsize(tmp_path / "s-0") == 2
    assert mesh.incarnation == 2


def test_a_class_that_cannot_be_loaded_is_not_tried_again(spawn_procs: Any, failures: Failures) -> None:

    class Bomb:
        def __reduce__(self) -> Any:
            return (int, ("no number",))

    restarts = Restarts()
    mesh = spawn_procs().spawn("m", Member, Bomb(), restart=Restart.one_for_one(on_restart=restarts))
    (failure,) = failures.wait()
    assert "cannot be loaded" in failure.report()
    fails(mesh.add.call_one(), "cannot be loaded")
    assert not restarts.seen


def test_a_stop_is_no_failure_and_starts_nothing_again(spawn_procs: Any, failures: Failures) -> None:
    restarts = Restarts()
    mesh = spawn_procs().spawn("m", Member, restart=Restart.one_for_one(backoff=AT_ONCE, on_restart=restarts))
    mesh.stop_itself.call_one().get()
    assert "enough" in str(fails(mesh.add.call_one()))
    assert not restarts.seen and not failures.seen
    mesh.stop().get(timeout=EVENT_S)


def test_with_the_processes_their_policies_end(spawn_procs: Any) -> None:
    procs = spawn_procs()
    mesh = procs.spawn("ends along", Member, restart=Restart.one_for_one())
    values(mesh)
    (thread,) = [one for one in threading.enumerate() if one.name == "monarch-restarts-ends along"]
    procs.stop().get(timeout=EVENT_S)
    thread.join(EVENT_S)
    assert not thread.is_alive()
    assert fails(mesh.add.call_one()).event.kind == "stopped"


def test_a_stop_during_a_restart_ends_it_and_what_waits_fails(spawn_procs: Any, failures: Failures) -> None:
    mesh = spawn_procs({"gpus": 2}).spawn("m", Member, restart=Restart.one_for_one(backoff=NEVER))
    values(mesh)
    fail_rank(mesh, 0)
    waiting = mesh.slice(gpus=0).add.call_one()
    mesh.stop("over").get(timeout=EVENT_S)
    assert fails(waiting).event.kind == "stopped"
    fails(mesh.slice(gpus=1).add.call_one(), "over")
    assert not failures.seen


def test_the_restart_asks_no_supervise_and_needs_no_idle_owner(spawn_procs: Any, failures: Failures) -> None:
    procs = spawn_procs({"gpus": 1})

    class Owner(Actor):
        def __init__(self) -> None:
            self.told = 0

        def __supervise__(self, failure: Any) -> bool:
            self.told += 1
            return True

        @endpoint
        def run(self) -> tuple[int, int]:
            mesh = procs.spawn("m", Member, restart=Restart.one_for_one(backoff=SOON))
            mesh.add.call_one(7).get()
            fails(mesh.leave.call_one())
            return mesh.add.call_one().get(timeout=EVENT_S), mesh.incarnation

        @endpoint
        def supervised(self) -> int:
            return self.told

    owner = this_proc().spawn("owner", Owner)
    assert owner.run.call_one().get(timeout=EVENT_S) == (1, 2)
    assert owner.supervised.call_one().get() == 0
    owner.stop().get()


def test_an_owner_that_handles_what_was_given_up_lives_on(spawn_procs: Any, failures: Failures) -> None:
    procs = spawn_procs({"gpus": 1})

    class Owner(Actor):
        def __init__(self) -> None:
            self.told: list[str] = []

        def __supervise__(self, failure: Any) -> bool:
            self.told.append(failure.report())
            return True

        @endpoint
        def run(self) -> None:
            self.mesh = procs.spawn("m", Member, restart=Restart.one_for_one(0))
            fails(self.mesh.leave.call_one())

        @endpoint
        def reports(self) -> list[str]:
            return self.told

    owner = this_proc().spawn("owner", Owner)
    owner.run.call_one().get(timeout=EVENT_S)
    while not (told := owner.reports.call_one().get()):
        pass
    assert "given up: more than 0" in told[0]
    assert not failures.seen
    owner.stop().get()


def test_a_member_whose_process_is_dead_climbs_at_once_and_the_others_keep_their_policy(
    spawn_procs: Any, failures: Failures
) -> None:
    mesh = spawn_procs({"gpus": 2}).spawn("m", Member, restart=Restart.one_for_one(backoff=AT_ONCE))
    values(mesh)
    fails(mesh.slice(gpus=0).kill_process.call_one())
    (failure,) = failures.wait()
    assert failure.crashed_ranks == [0] and failure.event.kind == "signalled"
    fails(mesh.slice(gpus=0).add.call_one())
    fail_rank(mesh, 1)
    assert mesh.slice(gpus=1).add.call_one().get(timeout=EVENT_S) == 1
    assert len(failures.seen) == 1


def test_constructor_arguments_are_those_of_the_spawn_also_when_the_caller_changes_them_later(
    spawn_procs: Any,
) -> None:
    class Holder(Member):
        def __init__(self, data: Any) -> None:
            self.data = data

        @endpoint
        def first(self) -> int:
            return int(self.data[0])

    data = bytearray(b"\1" * 100_000)
    mesh = spawn_procs().spawn(
        "m", Holder, pickle.PickleBuffer(data), restart=Restart.one_for_one(backoff=AT_ONCE)
    )
    assert mesh.first.call_one().get() == 1
    data[0] = 2
    fails(mesh.leave.call_one())
    assert mesh.first.call_one().get(timeout=EVENT_S) == 1


def test_an_argument_of_the_class_may_be_called_restart(spawn_procs: Any) -> None:
    class Own(Member):
        def __init__(self, restart: str) -> None:
            self.value = len(restart)

    assert spawn_procs().spawn("m", Own, restart="four").add.call_one(0).get() == 4


def test_a_class_with_async_endpoints_is_restarted_too(spawn_procs: Any, failures: Failures) -> None:
    restarts = Restarts()
    policy = Restart.one_for_all(backoff=AT_ONCE, on_restart=restarts)
    mesh = spawn_procs({"gpus": 2}).spawn("m", AsyncMember, 3, restart=policy)
    mesh.add.call(4).get()
    fail_rank(mesh, 0)
    restarts.wait()  # The other member is as it was until it is its turn.
    assert values(mesh) == [3, 3]
    assert not failures.seen


def test_on_restart_may_use_the_mesh_and_what_it_raises_ends_nothing(
    spawn_procs: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    done = Restarts()
    procs = spawn_procs({"gpus": 1})

    def on_restart(event: RestartEvent) -> None:
        mesh.add.call_one(event.incarnation).get(timeout=EVENT_S)
        done(event)
        if event.incarnation == 2:  # What the last one wrote would come when the test is over.
            raise ValueError("raised at 2")

    mesh = procs.spawn("m", Member, restart=Restart.one_for_one(backoff=AT_ONCE, on_restart=on_restart))
    for incarnation in (2, 3):
        fails(mesh.leave.call_one())
        assert done.wait(incarnation - 1)[-1].incarnation == incarnation
        assert values(mesh) == [incarnation]
    assert "raised at 2" in capfd.readouterr().err
