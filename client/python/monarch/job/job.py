"""What all kinds of jobs share."""

from __future__ import annotations

import contextlib
import os
import pickle
import stat
import tempfile
import uuid
from abc import ABC, abstractmethod
from typing import Any

from monarch._actor.host_mesh import HostMesh

DEFAULT_JOB_PATH = ".monarch/job_state.pkl"


class JobState:
    """The host meshes of a running job, as attributes by name."""

    def __init__(self, hosts: dict[str, HostMesh]) -> None:
        self._hosts = hosts

    def __getattr__(self, name: str) -> HostMesh:
        hosts: dict[str, HostMesh] = self.__dict__.get("_hosts", {})
        if name in hosts:
            return hosts[name]
        raise AttributeError(f"this job has no mesh {name!r}; it has {', '.join(sorted(hosts)) or 'none'}")


class JobTrait(ABC):
    """Something that can be asked for hosts. A class brings `_create`, `_state`, `can_run` and `_kill`.

    A job can be pickled, and is the same job then: whoever loads it may attach to its hosts, or kill it.
    """

    def __init__(self) -> None:
        self._apply_id: str | None = None
        self._handed_out: list[HostMesh] = []
        self._kept_at: str | None = None  # absolute

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_handed_out": []}

    @property
    def active(self) -> bool:
        """Whether the hosts were asked for, and not given back."""
        return self._apply_id is not None

    @property
    def apply_id(self) -> str | None:
        """Names one run of the job; None while it is not active."""
        return self._apply_id

    def apply(self, client_script: str | None = None) -> None:
        """Asks for the hosts; does nothing if the job is active.

        Args:
            client_script: a program to run beside the hosts, for kinds of jobs that can.
        """
        if not self.active:
            self._create(client_script)
            self._apply_id = str(uuid.uuid4())

    def state(self, cached_path: str | None = DEFAULT_JOB_PATH) -> JobState:
        """Attaches to the hosts, which are asked for if need be.

        Args:
            cached_path: where the job is kept, until it is killed, for the next program that asks for the same: that one
                goes on with this one's hosts. A job there that runs no more, or gives something else, is killed. None:
                nothing is kept or looked for.
        """
        if cached_path is None:
            self.apply()
        else:
            self._apply_and_keep(os.path.abspath(cached_path))
        state = self._state()
        self._handed_out += state._hosts.values()
        return state

    def kill(self) -> None:
        """Gives the hosts back: all that runs there ends, which is no failure of what this program spawned there."""
        handed_out, self._handed_out = self._handed_out, []
        try:
            for mesh in handed_out:
                mesh._core.give_up("its job was killed")
        finally:
            self._kill()
            self._apply_id = None
            if self._kept_at is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._kept_at)
                self._kept_at = None

    def dumps(self) -> bytes:
        """The job, pickled, for `job_loads`."""
        return pickle.dumps(self)

    def dump(self, path: str) -> None:
        """Writes the job, pickled, for `job_load`; only this user can read the file."""
        directory = os.path.dirname(os.path.abspath(path))
        os.makedirs(directory, exist_ok=True)
        file, beside = tempfile.mkstemp(dir=directory)
        try:
            with os.fdopen(file, "wb") as out:
                out.write(self.dumps())
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise

    def _apply_and_keep(self, path: str) -> None:
        if not self.active:
            self._take_over(path)
        is_new = not self.active
        self.apply()
        self._kept_at = path
        try:
            self.dump(path)
        except Exception:
            if is_new:
                self.kill()  # Nobody would know of it.
            raise

    def _take_over(self, path: str) -> None:
        """Becomes the job that is kept at a path, if that runs and does; else there is none afterwards."""
        try:
            kept = job_load(path)
        except FileNotFoundError:
            return
        if type(kept) is type(self) and kept.active and kept.can_run(self):
            self.__dict__.update(kept.__getstate__())
            return
        kept._kept_at = path
        kept.kill()

    @abstractmethod
    def _create(self, client_script: str | None) -> None: ...

    @abstractmethod
    def _state(self) -> JobState: ...

    @abstractmethod
    def can_run(self, spec: JobTrait) -> bool:
        """Whether this job, which runs, gives all that `spec` asks for."""

    @abstractmethod
    def _kill(self) -> None: ...


def job_loads(data: bytes) -> JobTrait:
    """The job of `dumps`. To be called with bytes of known origin only: loading may run anything."""
    job = pickle.loads(data)
    if not isinstance(job, JobTrait):
        raise TypeError(f"what was loaded is no job, but {job!r}")
    return job


def job_load(path: str) -> JobTrait:
    """The job of `dump`. PermissionError if others than this user could have written the file."""
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(
                f"{path} may be written to by others than this user, and loading it may run anything: remove it, or make "
                "it your own"
            )
        data = file.read()
    try:
        return job_loads(data)
    except Exception as error:
        raise RuntimeError(
            f"{path} cannot be loaded as a job ({error!r}): remove it, or name another path"
        ) from error
