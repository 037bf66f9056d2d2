"""What all kinds of jobs share."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod

from monarch._actor.host_mesh import HostMesh


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
    """Something that can be asked for hosts. A class brings `_create`, `_state`, `can_run` and `_kill`."""

    def __init__(self) -> None:
        self._apply_id: str | None = None
        self._handed_out: list[HostMesh] = []

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

    def state(self, cached_path: str | None = ".monarch/job_state.pkl") -> JobState:
        """Attaches to the hosts, which are asked for if need be.

        Args:
            cached_path: must be None: a job is not kept from one program to the next yet.
        """
        if cached_path is not None:
            raise NotImplementedError("jobs are not kept in a file yet: call state(cached_path=None)")
        self.apply()
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

    @abstractmethod
    def _create(self, client_script: str | None) -> None: ...

    @abstractmethod
    def _state(self) -> JobState: ...

    @abstractmethod
    def can_run(self, spec: JobTrait) -> bool:
        """Whether this job, which runs, gives all that `spec` asks for."""

    @abstractmethod
    def _kill(self) -> None: ...
