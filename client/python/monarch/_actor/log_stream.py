"""The output of processes that were spawned with forwarding: comes marked through a pipe, goes to stdout and stderr."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import select
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from monarch._actor.line_groups import LineGroups

if TYPE_CHECKING:
    from monarch._runtime import Proc

_STDOUT, _STDERR = 1, 2
_KINDS = {b"o": _STDOUT, b"e": _STDERR, b"O": _STDOUT, b"E": _STDERR}
_UNFINISHED = (b"O", b"E")
_END = b"x"
_READ_BYTES = 256 * 1024
# What an unprivileged process may ask for: fewer turns between the launcher and this process.
_PIPE_BYTES = 1024 * 1024
# More different lines in one window are printed before its end.
_GROUPS_MAX = 10_000

# A process prints it to both streams when it is asked; what it printed before is here when this is.
SYNC = b"\0monarch sync "


class MeshOutput:
    """How the output of one mesh's processes is printed. Thread-safe."""

    def __init__(self, stream: LogStream, tag: int, host: bytes, host_name: str) -> None:
        self.tag = str(tag)
        self.streaming = False
        self._stream = stream
        self._host = host
        self._host_name = host_name
        self._window: float | None = None
        self._prefix = False
        self._ranks: dict[bytes, int] = {}
        self._prefixes: dict[bytes, bytes] = {}
        self._groups = {_STDOUT: LineGroups(), _STDERR: LineGroups()}
        self._deadline: float | None = None
        self._ended = 0
        self._synced: dict[bytes, int] = {}

    def set_procs(self, procs: Sequence[Proc]) -> None:
        with self._stream.changed:
            self._ranks = {b"%d" % proc[1]: rank for rank, proc in enumerate(procs) if self.covers(proc)}

    def add_procs(self, procs: Mapping[int, Proc]) -> None:
        """Further ones, by rank, in the place of others."""
        with self._stream.changed:
            new = {b"%d" % proc[1]: rank for rank, proc in procs.items() if self.covers(proc)}
            self._ranks.update(new)
            self._prefixes.update((proc, self._prefix_of(proc)) for proc in new)

    def _prefix_of(self, proc: bytes) -> bytes:
        return (
            f"[{self._host_name} proc{proc.decode()}] [{self._ranks[proc]}] ".encode()
            if self._prefix
            else b""
        )

    def covers(self, proc: Proc) -> bool:
        """Whether the process's output comes here: not from other hosts."""
        return proc[0] == self._host

    def set_options(self, *, streaming: bool, window: float | None, prefix: bool) -> None:
        """From now on. What was collected until now is printed first."""
        with self._stream.changed:
            self._print_groups()
            self.streaming = streaming
            self._window = window
            self._prefix = prefix
            self._prefixes = {proc: self._prefix_of(proc) for proc in self._ranks}
        self._stream.wake()

    def flush(self) -> None:
        """Prints what was collected."""
        with self._stream.changed:
            self._print_groups()

    def wait_synced(self, token: bytes, times: int, timeout: float) -> None:
        """Returns when the token was printed that often, or after the time."""
        with self._stream.changed:
            self._stream.changed.wait_for(lambda: self._synced.get(token, 0) >= times, timeout)
            self._synced.pop(token, None)

    def finish(self, timeout: float) -> None:
        """Its processes are gone: prints what they left."""
        # Whoever prints holds the lock, and may be stuck.
        if not self._stream.changed.acquire(timeout=timeout):
            return
        try:
            self._stream.changed.wait_for(lambda: self._ended >= len(self._ranks), timeout)
            self._print_groups()
            self._stream.meshes.pop(self.tag.encode(), None)
        finally:
            self._stream.changed.release()

    # --- with the stream's lock ---

    def take(self, proc: bytes, kind: bytes, text: bytes, printed: dict[int, list[bytes]]) -> None:
        if kind == _END:
            self._ended += 1
            self._stream.changed.notify_all()
            return
        to = _KINDS[kind]
        if SYNC in text:
            text, _, token = text.partition(SYNC)
            self._synced[token] = self._synced.get(token, 0) + 1
            self._stream.changed.notify_all()
            if not text:
                return
            kind = kind.upper()
        prefix = self._prefixes.get(proc) if self.streaming else None
        if prefix is None:
            printed[to] += (text,) if kind in _UNFINISHED else (text, b"\n")
        elif self._window is None:
            printed[to] += (prefix, text, b"\n")
        else:
            groups = self._groups[to]
            groups.add(self._ranks[proc], text.decode("utf-8", "replace"))
            if self._deadline is None:
                self._deadline = time.monotonic() + self._window
            if len(groups) > _GROUPS_MAX:
                self._print_groups()

    def flush_overdue(self, now: float) -> float | None:
        """Prints what is due; returns when it has to be called again."""
        if self._deadline is not None and self._deadline <= now:
            self._print_groups()
        return self._deadline

    def _print_groups(self) -> None:
        self._deadline = None
        for to, groups in self._groups.items():
            if not groups:
                continue
            when = time.strftime("%Y-%m-%d %H:%M:%S")
            lines = [f"[{count} similar log lines] {line}\n" for count, line in groups.take()]
            text = f">>> Aggregated Logs ({when}) >>>\n{''.join(lines)}<<< Aggregated Logs ({when}) <<<\n"
            _write(to, text.encode())


class LogStream:
    """The reading end, and a thread that reads once there is a mesh. Thread-safe."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.meshes: dict[bytes, MeshOutput] = {}
        self._tags = itertools.count(1)
        self._reader, self._writer = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._rest = b""
        self._thread: threading.Thread | None = None

    @property
    def fd(self) -> int:
        """The end to hand out, until `handed_out`."""
        return self._writer

    def handed_out(self) -> None:
        os.close(self._writer)

    def add_mesh(self, host: bytes, host_name: str) -> MeshOutput:
        with self.changed:
            mesh = MeshOutput(self, next(self._tags), host, host_name)
            self.meshes[mesh.tag.encode()] = mesh
            if self._thread is None:
                self._thread = threading.Thread(target=self._read, name="monarch-logs", daemon=True)
                self._thread.start()
        return mesh

    def wake(self) -> None:
        """The time until which the reader waits may have changed."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b"w")

    def finish(self, timeout: float) -> None:
        """Nobody writes any more: prints all that is left."""
        thread = self._thread
        if thread is None:
            return
        thread.join(timeout)
        for mesh in list(self.meshes.values()):
            mesh.finish(0.0)

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            with self.changed:
                now = time.monotonic()
                deadlines = [mesh.flush_overdue(now) for mesh in self.meshes.values()]
            left = [deadline - now for deadline in deadlines if deadline is not None]
            ready = dict(poll.poll(max(0.0, min(left)) * 1000 + 1 if left else None))
            if self._woken in ready:
                os.read(self._woken, 4096)
            if self._reader in ready:
                data = os.read(self._reader, _READ_BYTES)
                if not data:
                    return
                self._take(data)

    def _take(self, data: bytes) -> None:
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        printed: dict[int, list[bytes]] = {_STDOUT: [], _STDERR: []}
        with self.changed:
            for line in lines:
                parts = line.split(b" ", 3)
                mesh = self.meshes.get(parts[0])
                if mesh is not None and len(parts) == 4:
                    mesh.take(parts[1], parts[2], parts[3], printed)
                elif len(parts) == 4 and parts[2] in _KINDS:
                    # Of what a process left behind, after its mesh was stopped.
                    printed[_KINDS[parts[2]]] += (parts[3], b"\n")
                elif parts[2:3] != [_END]:
                    # What the launcher says of dropped lines.
                    printed[_STDERR] += (line, b"\n")
            for to, pieces in printed.items():
                if pieces:
                    _write(to, b"".join(pieces))


def _write(to: int, data: bytes) -> None:
    """To what the program has as stdout or stderr now: a notebook or a test may have replaced it."""
    stream: Any = sys.stdout if to == _STDOUT else sys.stderr
    with contextlib.suppress(Exception):  # It may be closed, or gone.
        buffer = getattr(stream, "buffer", None)
        if buffer is None:
            stream.write(data.decode("utf-8", "replace"))
        else:
            stream.flush()
            buffer.write(data)
        stream.flush()
