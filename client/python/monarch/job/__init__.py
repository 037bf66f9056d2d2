"""Jobs: named meshes of hosts, and where they come from."""

from __future__ import annotations

from typing import NoReturn

from monarch.job.job import DEFAULT_JOB_PATH, JobState, JobTrait, job_load, job_loads
from monarch.job.login_job import LoginJob
from monarch.job.process_job import ProcessJob
from monarch.job.worker_processes import ProcessState

__all__ = [
    "DEFAULT_JOB_PATH",
    "JobState",
    "JobTrait",
    "LoginJob",
    "ProcessJob",
    "ProcessState",
    "job_load",
    "job_loads",
]

_LATER = frozenset(
    [
        "BashActor",
        "BatchJob",
        "LocalJob",
        "MeshAdminConfig",
        "PortForwarder",
        "SSHJob",
        "SlurmJob",
        "TelemetryConfig",
        "exec_command",
        "load_current_job",
        "set_current_job",
        "shell",
    ]
)


def __getattr__(name: str) -> NoReturn:
    if name in _LATER:
        raise NotImplementedError(f"monarch.job.{name} is not supported yet; there are {', '.join(__all__)}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
