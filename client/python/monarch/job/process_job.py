"""A job whose hosts are processes of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading

from monarch._actor.attach import attach_to_workers
from monarch._actor.worker_loop import TRUST, daemon_command
from monarch.job.job import JobState, JobTrait
from monarch.job.worker_processes import ProcessState, end_all, serves

# A worker loop's own ladder ends its processes with KILL one second after TERM.
_GRACE_S = 3.0


class ProcessJob(JobTrait):
    """Each host is a worker loop on this machine that serves a Unix socket: for trying out and testing.

    Args:
        meshes: the number of hosts of each mesh, by name.
        env: added to the environment of the hosts, and so of the processes that are spawned there.
    """

    def __init__(self, meshes: dict[str, int], env: dict[str, str] | None = None) -> None:
        super().__init__()
        self._meshes = dict(meshes)
        self._env = dict(env or {})
        self._host_to_pid: dict[str, ProcessState] = {}
        self._tmpdir: str | None = None

    def _create(self, client_script: str | None) -> None:
        if client_script is not None:
            raise RuntimeError("a ProcessJob cannot run a client script")
        self._tmpdir = tempfile.mkdtemp(prefix="monarch_job_")
        try:
            for name, count in self._meshes.items():
                for index in range(count):
                    self._start(f"{name}_{index}")
        except BaseException:
            self._kill()
            raise

    def _start(self, host: str) -> None:
        address = f"ipc://{self._tmpdir}/{host}"
        worker = subprocess.Popen(
            daemon_command(address),
            env={**os.environ, "HYPERACTOR_PROCESS_NAME": host, **self._env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        # Else it stays a zombie, which looks as if it lived.
        threading.Thread(target=worker.wait, name=f"monarch-host-{host}", daemon=True).start()
        self._host_to_pid[host] = ProcessState(worker.pid, address)

    def _pids_active(self) -> bool:
        return self.active and all(serves(process) for process in self._host_to_pid.values())

    def _state(self) -> JobState:
        if not self._pids_active():
            raise RuntimeError("a host of this job has ended: kill() the job and apply() it anew")
        return JobState(
            {
                name: attach_to_workers(
                    name=name,
                    ca=TRUST,
                    workers=[self._host_to_pid[f"{name}_{index}"].channel for index in range(count)],
                )
                for name, count in self._meshes.items()
            }
        )

    def can_run(self, spec: JobTrait) -> bool:
        return (
            isinstance(spec, ProcessJob)
            and (spec._meshes, spec._env) == (self._meshes, self._env)
            and self._pids_active()
        )

    def _kill(self) -> None:
        end_all([process.pid for process in self._host_to_pid.values() if serves(process)], _GRACE_S)
        self._host_to_pid.clear()
        if self._tmpdir is not None:
            shutil.rmtree(self._tmpdir, ignore_errors=True)
            self._tmpdir = None
