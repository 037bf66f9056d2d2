"""A job on hosts that are named, and logged in to."""

from __future__ import annotations

import contextlib
import os
import signal
from abc import abstractmethod
from collections.abc import Sequence

from monarch._actor.attach import attach_to_workers
from monarch._actor.worker_loop import TRUST
from monarch.job.job import JobState, JobTrait
from monarch.job.worker_processes import ProcessState, is_alive


class LoginJob(JobTrait):
    """Starts a worker loop on each host by `_start_host`, which a class brings: by ssh, for example."""

    def __init__(self) -> None:
        super().__init__()
        self._meshes: dict[str, list[str]] = {}
        self._host_to_pid: dict[str, ProcessState] = {}

    def add_mesh(self, name: str, hosts: Sequence[str]) -> None:
        """Adds a mesh of these hosts to the job, which is not active yet."""
        self._meshes[name] = list(hosts)

    @abstractmethod
    def _start_host(self, host: str) -> ProcessState:
        """Starts a worker loop on the host; the process of this machine that stands for it, and its address."""

    def _create(self, client_script: str | None) -> None:
        if client_script is not None:
            raise RuntimeError("a LoginJob cannot run a client script")
        try:
            # A host may be in several meshes, and has one worker loop all the same.
            for host in dict.fromkeys(host for hosts in self._meshes.values() for host in hosts):
                self._host_to_pid[host] = self._start_host(host)
        except BaseException:
            self._kill()
            raise

    def _pids_active(self) -> bool:
        return self.active and all(is_alive(process.pid) for process in self._host_to_pid.values())

    def _state(self) -> JobState:
        if not self._pids_active():
            raise RuntimeError(
                "the login to a host of this job has ended: kill() the job and apply() it anew"
            )
        return JobState(
            {
                name: attach_to_workers(
                    name=name, ca=TRUST, workers=[self._host_to_pid[host].channel for host in hosts]
                )
                for name, hosts in self._meshes.items()
            }
        )

    def can_run(self, spec: JobTrait) -> bool:
        return isinstance(spec, LoginJob) and spec._meshes == self._meshes and self._pids_active()

    def _kill(self) -> None:
        for process in self._host_to_pid.values():
            with contextlib.suppress(OSError):
                os.kill(process.pid, signal.SIGKILL)
        self._host_to_pid.clear()
