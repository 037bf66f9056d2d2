"""Ownership and supervision: each test is named after the sentence of docs/failure-rules.md that it checks."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from typing import Any

import pytest
from conftest import EVENT_S, Failures, wait_gone
from monarch.actor import Actor, SupervisionError, context, endpoint, this_host, this_proc
from sample_actors import Cleaning, Counter


def answer(how: str) -> Any:
    """What a `__supervise__` does."""
    if how == "raises":
        raise RuntimeError("boom from supervise")
    if how == "leaves":
        raise SystemExit(5)
    return {"true": True, "truthy": "yes", "false": False, "none": None, "zero": 0}[how]


class Spawner(Actor):
    """Without a `__supervise__`."""

    def __init__(self, how: str = "", procs: Any = None) -> None:
        self.how = how
        self.procs = procs
        self.seen: list[Any] = []

    @endpoint
    def spawn(self, name: str = "child", **kwargs: Any) -> Any:
        self.child = (self.procs or this_proc()).spawn(name, Counter, **kwargs)
        return self.child

    @endpoint
    def told(self) -> list[tuple[str, list[int], str, str]]:
        return [(f.mesh_name, f.crashed_ranks, f.report(), str(f)) for f in self.seen]

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def stop_child(self, reason: str = "done") -> None:
        self.child.stop(reason).get()

    @endpoint
    def drop(self) -> None:
        del self.child
        gc.collect()

    @endpoint
    def fail(self) -> None:
        raise ValueError("fails by itself")

    @endpoint
    def leave(self) -> None:
        raise SystemExit(3)


class SyncOwner(Spawner):
    def __supervise__(self, failure: Any) -> Any:
        self.seen.append(failure)
        return answer(self.how)


class AsyncHookOwner(Spawner):
    async def __supervise__(self, failure: Any) -> Any:  # type: ignore[override]
        await asyncio.sleep(0)
        self.seen.append(failure)
        return answer(self.how)


class AsyncSpawner(Actor):
    """As Spawner, with async endpoints."""

    def __init__(self, how: str = "", procs: Any = None) -> None:
        self.how = how
        self.procs = procs
        self.seen: list[Any] = []
        self.loop: Any = None

    @endpoint
    async def spawn(self, name: str = "child") -> Any:
        self.loop = asyncio.get_running_loop()
        self.child = (self.procs or this_proc()).spawn(name, Counter)
        return self.child

    @endpoint
    async def told(self) -> list[tuple[str, list[int], str, str]]:
        return [(f.mesh_name, f.crashed_ranks, f.report(), str(f)) for f in self.seen]

    @endpoint
    async def wait_for_ever(self) -> None:
        await asyncio.Event().wait()


class AsyncOwner(AsyncSpawner):
    async def __supervise__(self, failure: Any) -> Any:  # type: ignore[override]
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is self.loop
        self.seen.append(failure)
        return answer(self.how)


class AsyncOwnerSyncHook(AsyncSpawner):
    def __supervise__(self, failure: Any) -> Any:
        self.seen.append(failure)
        return answer(self.how)


ALL_OWNERS = (SyncOwner, AsyncHookOwner, AsyncOwner, AsyncOwnerSyncHook)


def wait_told(owner: Any, count: int) -> list[Any]:
    while True:
        told: list[Any] = owner.told.call_one().get(timeout=EVENT_S)
        if len(told) >= count:
            return told


# --- what __supervise__ answers ---


@pytest.mark.parametrize("owner_class", ALL_OWNERS)
@pytest.mark.parametrize("how", ["true", "truthy"])
def test_a_truthy_supervise_handles_and_nothing_more_happens(
    spawn_procs: Any, owner_class: type[Any], how: str, failures: Failures
) -> None:
    owner = spawn_procs().spawn("owner", owner_class, how)
    owner.spawn.call_one().get(timeout=EVENT_S).fail.broadcast("handled")
    ((name, ranks, report, text),) = wait_told(owner, 1)
    assert (name, ranks) == ("child", [0])
    assert "ValueError: handled" in report
    assert text.startswith("MeshFailure(mesh_name=child, crashed_ranks=[0], event=Supervision event: actor ")
    assert failures.seen == []


@pytest.mark.parametrize("owner_class", [*ALL_OWNERS, Spawner, AsyncSpawner])
@pytest.mark.parametrize("how", ["false", "none", "zero"])
def test_a_falsy_supervise_or_none_at_all_fails_the_owner_with_the_cause(
    spawn_procs: Any, owner_class: type[Any], how: str, failures: Failures
) -> None:
    owner = spawn_procs().spawn("owner", owner_class, how)
    owner.spawn.call_one().get(timeout=EVENT_S).fail.broadcast("not handled")
    (failure,) = failures.wait()
    assert failure.mesh_name == "owner"
    report = failure.report()
    first, *_, last = report.splitlines()
    label = f"<root>.<test_supervision.{owner_class.__name__} owner>"
    assert first == f"The actor {label}.<sample_actors.Counter child> and all its descendants have failed:"
    assert "ValueError: not handled" in report
    assert last == (
        f"The actor {label} failed because it did not handle a supervision event from its child. "
        f"The event was: actor {label}.<sample_actors.Counter child> failed"
    )
    error = owner.told.call_one().exception(timeout=EVENT_S)
    assert isinstance(error, SupervisionError)
    assert report in str(error)


@pytest.mark.parametrize("owner_class", ALL_OWNERS)
@pytest.mark.parametrize(("how", "text"), [("raises", "boom from supervise"), ("leaves", "SystemExit: 5")])
def test_a_supervise_that_raises_is_a_new_failure_chained_to_the_first(
    spawn_procs: Any, owner_class: type[Any], how: str, text: str, failures: Failures
) -> None:
    owner = spawn_procs().spawn("owner", owner_class, how)
    owner.spawn.call_one().get(timeout=EVENT_S).fail.broadcast("the first")
    (failure,) = failures.wait()
    report = failure.report()
    label = f"<root>.<test_supervision.{owner_class.__name__} owner>"
    assert report.startswith(f"The actor {label} and all its descendants have failed:\n")
    at = [report.index(t) for t in (text, "This error occurred while handling another failure:", "the first")]
    assert at == sorted(at)
    assert failure.event.cause.mesh == "child"


def test_the_causes_are_told_from_the_root_to_the_leaf(spawn_procs: Any, failures: Failures) -> None:
    class Middle(Spawner):
        @endpoint
        def nest(self) -> Any:
            self.child = this_proc().spawn("inner", Spawner)
            return self.child.spawn.call_one("leaf").get()

    leaf = spawn_procs({"gpus": 2}).slice(gpus=1).spawn("outer", Middle).nest.call_one().get(timeout=EVENT_S)
    leaf.fail.broadcast("deep down")
    report = failures.wait()[0].report()
    outer = f"<root>.<{Middle.__module__}.{Middle.__qualname__} outer>"
    inner = f"{outer}.<test_supervision.Spawner inner>"
    lines = report.splitlines()
    assert lines[0].startswith(f"The actor {inner}.<sample_actors.Counter leaf> ")
    assert [line.split(" failed because")[0] for line in lines if " failed because" in line] == [
        f"The actor {inner}",
        f"The actor {outer}",
    ]
    assert failures.seen[0].event.cause.cause.mesh == "leaf"


# --- who is told ---


@pytest.mark.parametrize("owner_class", ALL_OWNERS)
def test_supervise_is_never_called_for_a_clean_stop(
    spawn_procs: Any, owner_class: type[Any], failures: Failures
) -> None:
    procs = spawn_procs({"gpus": 2})
    owner = spawn_procs().spawn("owner", owner_class, "true", procs)
    child = owner.spawn.call_one().get(timeout=EVENT_S)
    child.slice(gpus=0).exit.broadcast(0)
    # Where the status is long in coming, the first error goes without it.
    with pytest.raises(SupervisionError, match="stopped|its cause is not known yet"):
        child.slice(gpus=0).get.call_one().get(timeout=EVENT_S)
    child.slice(gpus=1).fail.broadcast("told after the stop")
    assert [ranks for _, ranks, *_ in wait_told(owner, 1)] == [[1]]


def test_supervise_is_never_called_for_the_actors_own_errors(spawn_procs: Any, failures: Failures) -> None:
    owner = spawn_procs().spawn("owner", SyncOwner, "true")
    assert owner.fail.call_one().exception(timeout=EVENT_S) is not None
    assert owner.told.call_one().get(timeout=EVENT_S) == []
    owner.leave.call_one().exception(timeout=EVENT_S)
    assert failures.wait()[0].mesh_name == "owner"


def test_the_owner_is_who_called_spawn_and_not_who_owns_the_processes(
    spawn_procs: Any, failures: Failures
) -> None:
    owner = spawn_procs().spawn("owner", SyncOwner, "true", spawn_procs({"gpus": 2}))
    owner.spawn.call_one().get(timeout=EVENT_S).slice(gpus=1).fail.broadcast("x")
    ((name, ranks, *_),) = wait_told(owner, 1)
    assert (name, ranks) == ("child", [1])
    assert failures.seen == []


def test_a_holder_of_a_reference_gets_only_errors_of_its_own_calls(
    spawn_procs: Any, failures: Failures
) -> None:
    class Holder(SyncOwner):
        @endpoint
        def call_it(self, mesh: Any) -> str:
            return type(mesh.raise_base.call_one().exception()).__name__

    procs = spawn_procs({"gpus": 2})
    owner = procs.slice(gpus=0).spawn("owner", SyncOwner, "true")
    holder = procs.slice(gpus=1).spawn("holder", Holder, "false")
    child = owner.spawn.call_one().get(timeout=EVENT_S)
    assert holder.call_it.call_one(child).get(timeout=EVENT_S) == "SupervisionError"
    wait_told(owner, 1)
    assert holder.told.call_one().get(timeout=EVENT_S) == []


def test_the_owner_is_told_once_for_each_failed_rank(spawn_procs: Any, failures: Failures) -> None:
    procs = spawn_procs({"gpus": 3})
    owner = spawn_procs().spawn("owner", SyncOwner, "true", procs)
    child = owner.spawn.call_one().get(timeout=EVENT_S)
    child.slice(gpus=slice(0, 2)).fail.broadcast("first")
    wait_told(owner, 2)
    # What has failed dies with its process too, and that is no news.
    os.kill(procs.pids()[0], signal.SIGKILL)
    os.kill(procs.pids()[2], signal.SIGKILL)
    assert sorted(ranks for _, ranks, *_ in wait_told(owner, 3)) == [[0], [1], [2]]
    assert len(failures.wait(2)) == 2  # of the processes, to whoever spawned them
    assert len(owner.told.call_one().get(timeout=EVENT_S)) == 3


def test_a_dead_process_is_told_for_each_mesh_that_was_on_it(spawn_procs: Any, failures: Failures) -> None:
    procs = spawn_procs({"gpus": 2})
    for name in ("first", "second"):
        procs.spawn(name, Counter).get.call().get(timeout=EVENT_S)
    os.kill(procs.pids()[1], signal.SIGKILL)
    told = failures.wait(2)
    assert sorted((f.mesh_name, f.crashed_ranks) for f in told) == [("first", [1]), ("second", [1])]
    assert all("the process this actor was running on failed: Killed(sig=9)" in f.report() for f in told)


def test_catching_the_error_does_not_save_an_owner(spawn_procs: Any, failures: Failures) -> None:
    class Catches(Spawner):
        @endpoint
        def call_child(self) -> str:
            child = this_proc().spawn("child", Counter)
            return type(child.raise_base.call_one().exception()).__name__

    owner = spawn_procs().spawn("owner", Catches)
    assert owner.call_child.call_one().get(timeout=EVENT_S) == "SupervisionError"
    assert failures.wait()[0].mesh_name == "owner"


def test_supervise_waits_for_a_sync_endpoint_that_runs(spawn_procs: Any, failures: Failures) -> None:
    class Busy(Spawner):
        @endpoint
        def work(self) -> list[str]:
            child = this_proc().spawn("child", Counter)
            assert child.raise_base.call_one().exception(timeout=EVENT_S) is not None
            return [f.mesh_name for f in self.seen]

        def __supervise__(self, failure: Any) -> bool:
            self.seen.append(failure)
            return True

    owner = spawn_procs().spawn("owner", Busy)
    assert owner.work.call_one().get(timeout=EVENT_S) == []
    assert len(wait_told(owner, 1)) == 1


def test_supervise_runs_while_an_async_endpoint_is_suspended(spawn_procs: Any, failures: Failures) -> None:
    owner = spawn_procs().spawn("owner", AsyncOwner, "false")
    child = owner.spawn.call_one().get(timeout=EVENT_S)
    suspended = owner.wait_for_ever.call_one()
    child.fail.broadcast("meanwhile")
    with pytest.raises(SupervisionError, match="did not handle a supervision event"):
        suspended.get(timeout=EVENT_S)
    failures.wait()


# --- what goes down together ---


@pytest.mark.parametrize("how", ["fail", "stop"])
def test_whoever_ends_takes_its_actors_on_others_processes_along_but_not_the_processes(
    spawn_procs: Any, how: str, failures: Failures
) -> None:
    procs = spawn_procs({"gpus": 2})
    owner = spawn_procs().spawn("owner", SyncOwner, "true", procs)
    child = owner.spawn.call_one().get(timeout=EVENT_S)
    if how == "fail":
        owner.leave.call_one().exception(timeout=EVENT_S)
        failures.wait()
    else:
        owner.stop().get(timeout=EVENT_S)
    with pytest.raises(SupervisionError, match="stopped"):
        child.get.call().get(timeout=EVENT_S)
    assert procs.spawn("again", Counter).get.call().get(timeout=EVENT_S).values() == [0, 0]


class Logs(Actor):
    """Writes down its end, and ends with what it owns."""

    def __init__(self, path: str, depth: int) -> None:
        self.path, self.depth = path, depth
        if depth:
            self.child = this_proc().spawn(f"level{depth - 1}", Logs, path, depth - 1)
            self.child.ping.call_one().get()

    @endpoint
    def ping(self) -> None: ...

    @endpoint
    def fail(self) -> None:
        raise ValueError("at the top")

    def __cleanup__(self, exc: Exception | None) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(f"cleanup {self.depth} {exc is not None}\n")


def test_the_order_is_owned_meshes_then_cleanup_then_the_owner_is_told(
    spawn_procs: Any, failures: Failures, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    at_the_hook = []

    def hook(failure: Any) -> None:
        at_the_hook.append(log.read_text())
        failures(failure)

    monkeypatch.setattr("monarch.actor.unhandled_fault_hook", hook)
    top = spawn_procs().spawn("top", Logs, str(log), 2)
    top.ping.call_one().get(timeout=EVENT_S)
    top.fail.broadcast()
    failures.wait()
    assert at_the_hook == ["cleanup 0 False\ncleanup 1 False\ncleanup 2 True\n"]


def test_a_stop_ends_owned_meshes_first(spawn_procs: Any, failures: Failures, tmp_path: Any) -> None:
    log = tmp_path / "log"
    top = spawn_procs().spawn("top", Logs, str(log), 2)
    top.ping.call_one().get(timeout=EVENT_S)
    top.stop().get(timeout=EVENT_S)
    assert log.read_text() == "cleanup 0 False\ncleanup 1 False\ncleanup 2 False\n"
    assert failures.seen == []


def test_dropping_the_last_reference_to_a_mesh_stops_nothing(
    spawn_procs: Any, failures: Failures, tmp_path: Any
) -> None:
    out = tmp_path / "out"
    procs = spawn_procs()
    mesh = procs.spawn("cleaning", Cleaning, str(out))
    assert mesh.ping.call_one().get(timeout=EVENT_S) == "pong"
    del mesh
    gc.collect()
    owner = procs.spawn("owner", Spawner)
    child = owner.spawn.call_one().get(timeout=EVENT_S)
    owner.drop.call_one().get(timeout=EVENT_S)
    assert child.get.call_one().get(timeout=EVENT_S) == 0
    assert not out.exists()


@pytest.mark.parametrize("stopped_before", [False, True])
def test_when_the_owners_process_dies_holders_learn_it_and_orphans_stop(
    spawn_procs: Any, stopped_before: bool, failures: Failures
) -> None:
    procs = spawn_procs({"gpus": 1})
    owner = spawn_procs().spawn("owner", SyncOwner, "true", procs)
    child = owner.spawn.call_one().get(timeout=EVENT_S)
    child.get.call().get(timeout=EVENT_S)
    if stopped_before:
        owner.stop_child.call_one().get(timeout=EVENT_S)
    os.kill(owner.pid.call_one().get(timeout=EVENT_S), signal.SIGKILL)
    failures.wait()
    while True:  # The orphan needs a moment to stop.
        error = child.get.call().exception(timeout=EVENT_S)
        if error is not None:
            break
    assert isinstance(error, SupervisionError)
    assert str(error) == (
        "Endpoint call child.get() failed, timed out reaching controller "
        "<root>.<test_supervision.SyncOwner owner> for mesh child. Assuming controller's proc is dead"
    )
    # Processes owned by others stay.
    assert procs.spawn("again", Counter).get.call().get(timeout=EVENT_S).values() == [0]


def test_when_the_owners_process_dies_the_processes_it_owned_end(
    spawn_procs: Any, failures: Failures
) -> None:
    class OwnsProcs(Spawner):
        @endpoint
        def spawn_procs(self) -> list[int]:
            self.procs = this_host().spawn_procs({"inner": 2})
            return self.procs.pids()

    owner = spawn_procs().spawn("owner", OwnsProcs)
    pids = owner.spawn_procs.call_one().get(timeout=EVENT_S)
    os.kill(owner.pid.call_one().get(timeout=EVENT_S), signal.SIGKILL)
    failures.wait()
    assert all(wait_gone(pid, EVENT_S) for pid in pids)


def test_abort_takes_along_what_the_actor_owns(spawn_procs: Any, failures: Failures) -> None:
    class Aborts(Spawner):
        @endpoint
        def abort(self) -> None:
            context().actor_instance.kill("no more")

    owner = spawn_procs().spawn("owner", Aborts)
    child = owner.spawn.call_one().get(timeout=EVENT_S)
    owner.abort.call_one().exception(timeout=EVENT_S)
    assert "actor explicitly aborted due to: no more" in failures.wait()[0].report()
    with pytest.raises(SupervisionError, match="stopped"):
        child.get.call_one().get(timeout=EVENT_S)
