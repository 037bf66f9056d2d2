"""What `ProcMesh.logging_option` does in each process, and the flush at the end of a notebook's cell."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from monarch._actor import pickling
from monarch._actor.actor import Actor
from monarch._actor.context import context
from monarch._actor.endpoint import endpoint
from monarch._actor.log_stream import SYNC

if TYPE_CHECKING:
    from monarch._actor.actor_mesh import ActorMesh
    from monarch._actor.log_stream import MeshOutput
    from monarch._actor.proc_mesh import ProcMesh

# For what the processes have printed to arrive; longer only if one has closed its stdout or stderr.
SYNC_S = 3.0

_tokens = itertools.count(1)


class LogControl(Actor):
    """One in each process, for the time of a request."""

    @endpoint
    def apply(self, level: int | None, token: bytes | None) -> None:
        """Sets the root logger's level, and sends the token behind all that was printed."""
        if level is not None:
            import logging

            logging.getLogger().setLevel(level)
        if token is not None:
            for stream, fd in ((sys.stdout, 1), (sys.stderr, 2)):
                # A program may have closed either.
                with contextlib.suppress(OSError, ValueError):
                    if stream is not None:
                        stream.flush()
                with contextlib.suppress(OSError):
                    os.write(fd, SYNC + token + b"\n")


def spawn_control(mesh: ProcMesh) -> ActorMesh[Any]:
    parts = pickling.dumps((LogControl, (), {}))
    return mesh._spawn(context().actor_instance, "logging", LogControl, parts)


def next_token() -> bytes:
    return b"%d" % next(_tokens)


def flush(mesh: ProcMesh, output: MeshOutput) -> None:
    """Prints all that the mesh's processes have printed so far; blocks for it."""
    token = next_token()
    control = spawn_control(mesh)
    try:
        control.apply.call(None, token).get(timeout=SYNC_S)
        wait_synced(mesh, output, token)
        output.flush()
    finally:
        control.stop()


def wait_synced(mesh: ProcMesh, output: MeshOutput, token: bytes) -> None:
    """Blocks until all that the processes printed before the token is here."""
    procs = mesh._core.procs
    output.wait_synced(token, 2 * sum(output.covers(procs[rank]) for rank in mesh._ndslice), SYNC_S)


_cells: CellFlusher | None = None


class CellFlusher:
    """Flushes all streaming meshes after each cell of an IPython session."""

    def __init__(self, ipython: Any) -> None:
        self.meshes: list[tuple[ProcMesh, MeshOutput]] = []
        ipython.events.register("post_run_cell", self._after_cell)

    def _after_cell(self, result: object) -> None:
        thread = threading.Thread(target=self._flush_all, name="monarch-flush", daemon=True)
        thread.start()
        asyncio = sys.modules.get("asyncio")
        if asyncio is None or asyncio._get_running_loop() is None:
            thread.join(SYNC_S)

    def _flush_all(self) -> None:
        for mesh, output in list(self.meshes):
            try:
                if mesh._core.stopped:
                    self.meshes.remove((mesh, output))
                else:
                    flush(mesh, output)
            except Exception:
                # Its processes may be gone, which others are told.
                output.flush()


def flush_after_cells(mesh: ProcMesh, output: MeshOutput) -> None:
    """Once for each mesh that streams; nothing outside IPython."""
    global _cells
    module: Any = sys.modules.get("IPython")
    ipython = module.get_ipython() if module is not None else None
    if ipython is None:
        return
    if _cells is None:
        _cells = CellFlusher(ipython)
    if (mesh, output) not in _cells.meshes:
        _cells.meshes.append((mesh, output))
