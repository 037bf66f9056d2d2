"""What a mesh of processes and all its slices share."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from monarch._actor.future import Future
from monarch._actor.members import Members
from monarch._actor.owned import GONE, warn_late
from monarch._actor.readiness import Readiness
from monarch._actor.shape import Shape
from monarch._actor.turns import Turns
from monarch._config.layers import layers

if TYPE_CHECKING:
    from monarch._actor.context import Instance
    from monarch._actor.log_stream import MeshOutput
    from monarch._actor.owned import Owned, Stopping
    from monarch._actor.proc_mesh import ProcMesh
    from monarch._actor.restartable_procs import RestartableProcs
    from monarch._actor.restarter import Restarter
    from monarch._runtime import Proc

# Between a stop's TERM, which follows the grace period, and KILL.
_KILL_AFTER_MS = 1000
# For the last lines of processes that are gone to arrive.
_OUTPUT_S = 3.0
_SIGKILL, _SIGTERM = 9, 15  # of the daemon; without importing signal


def _grace(seconds: float | None) -> float:
    """What processes have to leave by themselves."""
    return layers.seconds("process_exit_timeout") if seconds is None else seconds


class ProcMeshCore:
    """What a mesh of processes and all its slices share."""

    is_procs = True

    def __init__(
        self, name: str, readiness: Readiness, procs: list[Proc], owner: Instance | None, per_host: int = 1
    ) -> None:
        self.name = name
        self.readiness = readiness
        self.members = Members(procs)  # in rank order, host by host, once ready
        self.shape = Shape.unity()  # as spawned
        self.per_host = per_host
        self.pids: list[int] = []
        self.owner = owner  # None: a reference
        self.stopped = False
        self._stop_lock = threading.Lock()
        self._stopping: Stopping = lambda deadline: None
        self.mesh: ProcMesh | None = None  # what the spawner was given
        self.turns = Turns()  # for what changes the processes, or ends them
        self.restarter: Restarter | None = None  # with the spawner, if it gave a policy
        self.restartable: RestartableProcs | None = None
        self.output: MeshOutput | None = None  # with forwarding, in the client that spawned the processes

    @property
    def procs(self) -> list[Proc]:
        return self.members.addresses

    def _told(self) -> int:
        """Who of this process is told of deaths."""
        assert self.owner is not None
        return self.owner.actor if self.restarter is None else self.restarter.actor

    def tell(self) -> None:
        assert self.owner is not None
        labels, sizes = self.shape.labels, self.shape.ndslice.sizes
        self.owner.runtime.add_owned_mesh(self._told(), self.name, "", 0, self.procs, labels, sizes)

    def tell_no_more(self) -> None:
        if self.owner is not None:
            self.owner.runtime.remove_owned_mesh(self._told(), 0, self.name)

    def begin_stop(self, reason: str, grace_s: float | None = None) -> Stopping:
        """Stops the processes, once; all who ask wait for the same. `grace_s`: None: as configured."""
        with self._stop_lock:
            if self.owner is not None and not self.stopped and self.readiness.error is None:
                self.stopped = True
                self._restart_no_more()
                self._stopping = self._stop_in_background(reason, grace_s)
            return self._stopping

    def _restart_no_more(self) -> None:
        if self.restarter is not None:
            self.restarter.quit()

    def _stop_in_background(self, reason: str, grace_s: float | None) -> Stopping:
        """On a thread of its own, for the control plane's requests block."""

        def stop() -> None:
            self.readiness.wait_over()
            if self.readiness.error is not None:
                return
            try:
                with self.turns:
                    self.end_procs(reason, grace_s)
            except RuntimeError as error:
                # A daemon that is gone has taken them along.
                if getattr(error, "code", "") not in GONE:
                    raise

        stopping = Future._from_function(stop, eager=True)

        def wait(deadline: float) -> None:
            # Longer than the daemon's own ladder takes, and so only for a daemon that does not answer.
            limit = _grace(grace_s) + layers.seconds("proc_stop_max_idle")
            stopping._wait(max(0.0, deadline - time.monotonic()) + limit)
            stopping.get()  # It is settled: raises what went wrong.

        return wait

    def end_procs(self, reason: str, grace_s: float | None = None) -> None:
        """Blocks until they are gone."""
        self._let_go(reason)
        for mesh in self._actors_of_owner():
            mesh.tell_no_more()
        self.stop_procs(self.procs, reason, grace_s)
        if self.output is not None:
            self.output.finish(_OUTPUT_S)
        if self.owner is not None:
            for mesh in self._actors_of_owner():
                self.owner.release(mesh)
                mesh.disown(reason)

    def _let_go(self, reason: str) -> None:
        """Their end is no failure from now on, and what waits for a restart fails. In turn."""
        self._restart_no_more()  # The start may have made the restarter since.
        self.tell_no_more()
        event = {"kind": "stopped", "mesh": self.name, "reason": reason}
        self.members.supervised = False
        self.members.lose_all_down(event)
        for actors in self.restartable.actors if self.restartable is not None else ():
            actors.release(event)

    def stop_procs(self, procs: list[Proc], reason: str, grace_s: float | None = None) -> None:
        """Blocks until they are gone."""
        from monarch._actor.process import process

        grace_s = _grace(grace_s)
        grace_ms = max(1, int(grace_s * 1000))
        runtime = process().runtime
        # Known here before the daemon knows of it: no end in this stop.
        dead = [runtime.death_of(proc) is not None for proc in procs]
        started = time.monotonic()
        ends = process().control().stop_procs(procs, grace_ms, _KILL_AFTER_MS, reason)
        had_its_time = time.monotonic() - started >= grace_s  # else the session ended meanwhile
        for end, was_dead in zip(ends, dead, strict=True):
            who = f"process {end['pid']} of mesh {self.name!r} {end['rank_label']} on {end['host_name']}"
            if end["kind"] != "stopped":
                # Else it had died before, which its owner knows.
                if not was_dead and end["reason"].endswith(f"(while it was being stopped: {reason})"):
                    warn_late(f"{who} crashed when it was stopped: {end['summary']}")
                continue
            # The daemon adds what it took to end it.
            how = end["reason"].removeprefix(f"{reason}; ")
            late = end["code"] in (_SIGTERM, _SIGKILL)
            if how != end["reason"] and (had_its_time or not late):
                what = f"did not leave within {grace_s:g} s" if late else "crashed when it was stopped"
                warn_late(f"{who} {what}: {how}")

    def leave_and_stop(self, reason: str, grace_s: float | None = None) -> Stopping:
        """As begin_stop, for who stops the mesh before its owner ends."""
        if self.owner is not None:
            self.owner.release(self)
        return self.begin_stop(reason, grace_s)

    def stop(self, reason: str, grace_s: float | None = None) -> None:
        self.leave_and_stop(reason, grace_s)(time.monotonic())

    def give_up(self, reason: str) -> None:
        """Somebody ends the processes on purpose: their end, and that of the owner's actors there, is no failure."""
        owner = self.owner
        if owner is None or self.stopped:
            return
        self.stopped = True
        for mesh in (self, *self._actors_of_owner()):
            owner.release(mesh)
            mesh.disown(reason)

    def _actors_of_owner(self) -> list[Owned]:
        owned = [] if self.owner is None else self.owner.owned
        return [mesh for mesh in owned if mesh.is_on(self)]

    def is_on(self, procs: ProcMeshCore) -> bool:
        return False

    def disown(self, reason: str) -> None:
        self._restart_no_more()
        # Behind the start, which may be under way, and behind a restart.
        self.readiness.post(lambda: self.turns.post(lambda: self._let_go(reason)), lambda error: None)
