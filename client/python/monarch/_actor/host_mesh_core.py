"""What a mesh of hosts and all its slices share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from monarch._actor.future import Future
from monarch._actor.owned import GONE, wait_for_all
from monarch._actor.readiness import Readiness
from monarch._config.layers import layers

if TYPE_CHECKING:
    from monarch._actor.proc_mesh_core import ProcMeshCore

SHUT_DOWN = "HostMesh has already been shut down"
# Between a shutdown's TERM and KILL.
_KILL_AFTER_MS = 1000


def on_each_host(requests: list[Callable[[], Any]]) -> list[Any]:
    """Makes blocking requests side by side; the results in their order, an error in place of one that failed."""
    running = [Future._from_function(request, eager=True) for request in requests]
    out: list[Any] = []
    for future in running:
        try:
            out.append(future.get())
        except Exception as error:
            out.append(error)
    return out


class HostMeshCore:
    """Thread-safe."""

    def __init__(
        self, hosts: list[bytes], readiness: Readiness, python_executable: str | None = None
    ) -> None:
        self.hosts = hosts  # ids by rank, once ready
        self.readiness = readiness
        self.python_executable = python_executable  # None: that of the spawner
        self.is_shut_down = False
        self._origin: HostMeshCore | None = None  # of a view with another interpreter: whose hosts they are
        self._lock = threading.Lock()
        self._spawned: list[ProcMeshCore] = []

    def with_executable(self, path: str) -> HostMeshCore:
        """The same hosts, which are ready, for a reference whose processes run another interpreter."""
        view = HostMeshCore(self.hosts, Readiness.done(), path)
        view._origin = self._origin or self
        return view

    def check_open(self) -> None:
        if (self._origin or self).is_shut_down:
            raise RuntimeError(SHUT_DOWN)

    def add_spawned(self, procs: ProcMeshCore) -> None:
        if self._origin is not None:
            self._origin.add_spawned(procs)
            return
        with self._lock:
            self.check_open()
            self._spawned = [*(core for core in self._spawned if not core.stopped), procs]

    def spawned(self) -> list[ProcMeshCore]:
        """The processes that were spawned through this mesh and are up; waits for those that are being started."""
        with self._lock:
            spawned = list(self._spawned)
        for core in spawned:
            core.readiness.wait_over()
        return [core for core in spawned if not core.stopped and core.readiness.error is None]

    def stop_procs(self, reason: str) -> None:
        """Ends the processes that were spawned through this mesh; blocks until they are gone."""
        with self._lock:
            spawned, self._spawned = self._spawned, []
        stopping = [core.leave_and_stop(reason) for core in spawned]
        wait_for_all(stopping, time.monotonic())

    def give_up(self, reason: str) -> None:
        """Before the hosts are taken away on purpose: what ends with them was stopped, and has not failed."""
        with self._lock:
            self.is_shut_down = True
            spawned, self._spawned = self._spawned, []
        for core in spawned:
            core.give_up(reason)

    def shutdown(self) -> None:
        """Ends the processes, and then the daemons of the hosts."""
        from monarch._actor.process import process

        self.readiness.wait()
        with self._lock:
            self.check_open()
            self.is_shut_down = True
        self.stop_procs("the host mesh was shut down")
        control = process().control()
        grace_ms = max(1, int(layers.seconds("process_exit_timeout") * 1000))
        hosts = list(dict.fromkeys(self.hosts))
        results = on_each_host(
            [partial(control.shutdown_host, host, grace_ms, _KILL_AFTER_MS) for host in hosts]
        )
        failed = [
            f"{host.hex()[:8]}: {result}"
            for host, result in zip(hosts, results, strict=True)
            if isinstance(result, Exception) and getattr(result, "code", "") not in GONE
        ]
        if failed:
            raise RuntimeError(f"{len(failed)} host(s) could not be shut down: {'; '.join(failed)}")
