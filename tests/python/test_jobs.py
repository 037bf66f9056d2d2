"""Jobs that are kept in a file, from one program to the next."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import EVENT_S, wait_gone
from monarch.job import DEFAULT_JOB_PATH, JobTrait, ProcessJob, job_load, job_loads
from monarch.job.worker_processes import ProcessState, serves

PROGRAM = """
import os, sys
from monarch.actor import Actor, endpoint
from monarch.job import ProcessJob

class Parent(Actor):
    @endpoint
    def get(self):
        return os.environ.get("WHO", "")

job = ProcessJob({"hosts": int(sys.argv[1])}, env={"WHO": sys.argv[2]})
hosts = job.state().hosts
print(sorted(set(hosts.spawn_procs().spawn("parents", Parent).get.call().get().values())))
print(*(process.pid for process in job._host_to_pid.values()))
if sys.argv[3] == "kill":
    job.kill()
"""


def pids_of(job: JobTrait) -> list[int]:
    assert isinstance(job, ProcessJob)
    return [process.pid for process in job._host_to_pid.values()]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    """The file of the job of programs that run in tmp_path. What is kept there at the end is killed."""
    path = tmp_path / DEFAULT_JOB_PATH
    yield path
    if path.exists():
        job_load(str(path)).kill()


def test_the_next_program_goes_on_with_the_hosts_of_the_last(
    run_python: Callable[..., Any], kept: Path
) -> None:
    first = run_python("-c", PROGRAM, "2", "me", "keep")
    assert first.status == 0, first.err
    assert first.out.startswith("['me']\n")
    assert kept.stat().st_mode & 0o777 == 0o600
    second = run_python("-c", PROGRAM, "2", "me", "kill")
    assert second.out == first.out, second.err
    assert not kept.exists()
    assert all(wait_gone(int(pid), EVENT_S) for pid in first.out.splitlines()[1].split())


@pytest.mark.parametrize(("hosts", "who"), [("2", "me"), ("1", "you")])
def test_a_kept_job_that_gives_something_else_is_killed(
    run_python: Callable[..., Any], kept: Path, hosts: str, who: str
) -> None:
    first = run_python("-c", PROGRAM, "1", "me", "keep")
    before = pids_of(job_load(str(kept)))
    assert len(before) == 1, first.err
    second = run_python("-c", PROGRAM, hosts, who, "keep")
    assert second.out.startswith(f"['{who}']\n"), second.err
    assert wait_gone(before[0], EVENT_S)
    after = pids_of(job_load(str(kept)))
    assert len(after) == int(hosts)
    assert before[0] not in after


def test_a_kept_job_whose_hosts_are_gone_is_started_anew(run_python: Callable[..., Any], kept: Path) -> None:
    run_python("-c", PROGRAM, "1", "me", "keep")
    before = pids_of(job_load(str(kept)))[0]
    os.kill(before, 9)
    assert wait_gone(before, EVENT_S)
    second = run_python("-c", PROGRAM, "1", "me", "kill")
    assert second.out.startswith("['me']\n"), second.err


def test_a_job_is_dumped_and_loaded(tmp_path: Path) -> None:
    job = ProcessJob({"hosts": 3}, env={"A": "b"})
    copy = job_loads(job.dumps())
    assert isinstance(copy, ProcessJob)
    assert (copy._meshes, copy._env, copy.active) == ({"hosts": 3}, {"A": "b"}, False)
    job.dump(str(tmp_path / "job"))
    assert isinstance(job_load(str(tmp_path / "job")), ProcessJob)


def test_a_file_that_others_may_write_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "job"
    ProcessJob({"hosts": 1}).dump(str(path))
    path.chmod(0o622)
    with pytest.raises(PermissionError, match="others than this user"):
        job_load(str(path))
    with pytest.raises(PermissionError, match="others than this user"):
        ProcessJob({"hosts": 1}).state(cached_path=str(path))


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x80\x04K\x07."])
def test_a_file_that_is_no_job_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "job"
    path.touch(mode=0o600)
    path.write_bytes(content)
    with pytest.raises(RuntimeError, match=f"{path} cannot be loaded as a job"):
        ProcessJob({"hosts": 1}).state(cached_path=str(path))


class Unkept(ProcessJob):
    """Has something that cannot be pickled once it runs."""

    def _create(self, client_script: str | None) -> None:
        super()._create(client_script)
        self.started = pids_of(self)
        self.generator = (pid for pid in self.started)


def test_a_job_that_cannot_be_kept_does_not_stay(tmp_path: Path) -> None:
    job = Unkept({"hosts": 1})
    with pytest.raises(TypeError, match="generator"):
        job.state(cached_path=str(tmp_path / "job"))
    assert not job.active
    assert os.listdir(tmp_path) == []
    assert wait_gone(job.started[0], EVENT_S)


def test_another_process_with_the_id_of_a_worker_loop_is_none() -> None:
    assert not serves(ProcessState(os.getpid(), "ipc:///nowhere"))
    job = ProcessJob({"hosts": 1})
    job._host_to_pid["hosts_0"] = ProcessState(os.getpid(), "ipc:///nowhere")
    job.kill()  # Which is not the end of this process.
