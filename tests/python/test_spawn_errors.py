"""Spawns that cannot succeed: each names what went wrong, and none hangs."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from conftest import EVENT_S, Failures
from monarch.actor import (
    Actor,
    ActorError,
    BootstrapCommand,
    SpawnError,
    SupervisionError,
    default_bootstrap_cmd,
    endpoint,
    this_host,
)
from sample_actors import Counter


def test_missing_interpreter_is_named(failures: Failures) -> None:
    procs = this_host().with_python_executable("/no/such/python").spawn_procs({"gpus": 2})
    with pytest.raises(SpawnError, match="/no/such/python|No such file") as caught:
        procs.initialized.get(timeout=EVENT_S)
    assert isinstance(caught.value, (RuntimeError, ValueError))
    assert caught.value.events
    assert caught.value.events[0].kind == "start_failed"
    counters = procs.spawn("counters", Counter)
    with pytest.raises(RuntimeError, match="error spawning"):
        counters.initialized.get(timeout=EVENT_S)
    with pytest.raises(SupervisionError, match="error spawning"):
        counters.get.call().get(timeout=EVENT_S)
    counters.get.broadcast()


def test_crash_before_ready_names_rank_phase_status_and_stderr(failures: Failures) -> None:
    def command(point: Any) -> BootstrapCommand:
        if point["gpus"] != 1:
            return default_bootstrap_cmd()
        return BootstrapCommand(
            sys.executable,
            None,
            ["-c", "import sys; print('no libfoo here', file=sys.stderr); sys.exit(5)"],
            {},
        )

    procs = this_host().spawn_procs({"gpus": 3}, bootstrap_command=command)
    with pytest.raises(SpawnError) as caught:
        procs.initialized.get(timeout=EVENT_S)
    (failure,) = caught.value.events
    assert failure.rank == 1
    assert failure.phase
    assert failure.code == 5 or "5" in failure.reason
    text = str(caught.value)
    assert "error spawning proc mesh: statuses:" in text
    assert "no libfoo here" in text
    assert failure.phase in text


def test_signal_before_ready_is_named(failures: Failures) -> None:
    command = BootstrapCommand(sys.executable, None, ["-c", "import os; os.kill(os.getpid(), 11)"], {})
    procs = this_host().spawn_procs(bootstrap_command=command)
    with pytest.raises(SpawnError, match="11|SIGSEGV"):
        procs.initialized.get(timeout=EVENT_S)


def test_too_many_processes_name_the_limit(failures: Failures) -> None:
    procs = this_host().spawn_procs({"gpus": 1_000_000})
    with pytest.raises(SpawnError, match="procs_per_session_max") as caught:
        procs.initialized.get(timeout=EVENT_S)
    assert caught.value.limit == "procs_per_session_max"


def test_a_class_that_cannot_be_imported_in_the_worker(
    spawn_procs: Any, tmp_path: Any, failures: Failures
) -> None:
    (tmp_path / "only_here.py").write_text(
        "from monarch.actor import Actor, endpoint\n"
        "class Hidden(Actor):\n"
        "    @endpoint\n"
        "    def ping(self): return 1\n"
    )
    procs = spawn_procs({"gpus": 2})
    procs.initialized.get(timeout=EVENT_S)  # Its search path is that of now.
    sys.path.insert(0, str(tmp_path))
    try:
        import only_here  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(tmp_path))
    hidden = procs.spawn("hidden", only_here.Hidden)
    with pytest.raises(SupervisionError) as caught:
        hidden.slice(gpus=0).ping.call().get(timeout=EVENT_S)
    text = str(caught.value)
    assert isinstance(caught.value, SpawnError)
    assert "only_here.Hidden" in text
    assert "rank 0 {'gpus': 0/2}" in text
    assert "ModuleNotFoundError: No module named 'only_here'" in text
    told = failures.wait(2)
    assert sorted(failure.crashed_ranks[0] for failure in told) == [0, 1]
    assert "ModuleNotFoundError: No module named 'only_here'" in told[0].report()


def test_bad_dimensions_are_refused_by_the_call() -> None:
    for bad in ({"gpus": 0}, {"gpus": -1}, {"gpus": 1.5}, {3: 1}):
        with pytest.raises((ValueError, TypeError)):
            this_host().spawn_procs(bad)


def test_bootstrap_runs_before_the_actors(spawn_procs: Any) -> None:
    class Reads(Actor):
        @endpoint
        def variable(self) -> str | None:
            return os.environ.get("SET_BY_BOOTSTRAP")

    procs = spawn_procs({"gpus": 2}, bootstrap=lambda: os.environ.__setitem__("SET_BY_BOOTSTRAP", "yes"))
    assert procs.spawn("reads", Reads).variable.call().get(timeout=EVENT_S).values() == ["yes", "yes"]


def test_bootstrap_that_raises_fails_the_mesh(spawn_procs: Any, failures: Failures) -> None:
    def bootstrap() -> None:
        raise OSError("no data set")

    procs = spawn_procs({"gpus": 2}, bootstrap=bootstrap)
    with pytest.raises(ActorError, match="no data set"):
        procs.initialized.get(timeout=EVENT_S)


def test_proc_bind(spawn_procs: Any) -> None:
    class Cpus(Actor):
        @endpoint
        def cpus(self) -> list[int]:
            return sorted(os.sched_getaffinity(0))

    with pytest.raises(ValueError, match=r"proc_bind length \(1\) must equal procs_per_host \(4\)"):
        this_host().spawn_procs({"gpus": 4}, proc_bind=[{"cpus": "0"}])
    procs = spawn_procs({"gpus": 2}, proc_bind=[{"cpus": "0"}, {"cpus": "0-0"}])
    assert procs.spawn("cpus", Cpus).cpus.call().get(timeout=EVENT_S).values() == [[0], [0]]


def test_workers_have_the_clients_surroundings(spawn_procs: Any, monkeypatch: Any, tmp_path: Any) -> None:
    class Surroundings(Actor):
        @endpoint
        def all(self) -> tuple[str, str | None, int]:
            mask = os.umask(0)
            os.umask(mask)
            return os.getcwd(), os.environ.get("OF_THE_CLIENT"), mask

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OF_THE_CLIENT", "ä")
    before = os.umask(0o027)
    try:
        procs = spawn_procs()
    finally:
        os.umask(before)
    here = procs.spawn("surroundings", Surroundings)
    assert here.all.call_one().get(timeout=EVENT_S) == (str(tmp_path), "ä", 0o027)


def test_files_in_the_working_directory_shadow_nothing(
    spawn_procs: Any, monkeypatch: Any, tmp_path: Any
) -> None:
    for name in ("random", "pickle", "threading", "typing", "monarch"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    assert spawn_procs().spawn("counter", Counter, 3).get.call_one().get(timeout=EVENT_S) == 3


def test_a_limit_for_workers_that_cannot_be_set_is_refused_with_what_is_missing(
    spawn_procs: Any, failures: Failures
) -> None:
    procs = spawn_procs({"gpus": 2}, memory_max=1 << 40, pids_max=100_000)
    try:
        procs.initialized.get(timeout=EVENT_S)
    except SpawnError as error:
        assert [failure.rank for failure in error.events] == [0, 1]
        assert "memory_max, pids_max: " in error.events[0].reason
        assert "cgroup" in error.events[0].reason
    else:
        pytest.skip("this session has a cgroup of its own")
    assert spawn_procs({"gpus": 2}).initialized.get(timeout=EVENT_S)


def test_a_limit_for_workers_that_is_none_is_refused_by_the_call() -> None:
    for bad in ({"memory_max": 0}, {"pids_max": -1}, {"memory_max": 1 << 63}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            this_host().spawn_procs(**bad)
    for odd in ({"memory_max": "1G"}, {"pids_max": 1.5}, {"pids_max": True}):
        with pytest.raises(TypeError, match=next(iter(odd))):
            this_host().spawn_procs(**odd)  # type: ignore[arg-type]
