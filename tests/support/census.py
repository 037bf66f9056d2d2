"""Who belongs to a test: by an environment mark, by descent, and by the session; and whether all of it is gone."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import select
import time
import uuid

SLOWER = float(os.environ.get("MONARCH_TEST_SLOWER", "1"))  # than this machine: an emulated one
GONE_S = 2.0 * SLOWER  # what the failure rules promise


@dataclasses.dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    state: str
    started: int
    threads: int
    name: str
    marked: bool
    session: str

    def ended(self) -> bool:
        """A leader that is a zombie may have threads that are not done yet."""
        return self.state in "ZX" and self.threads <= 1


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError):
        return pathlib.Path(path).read_bytes()
    return b""


def look_at(pid: int, mark: bytes) -> Process | None:
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return None
    name, _, rest = stat.partition(b"(")[2].rpartition(b")")
    fields = rest.split()
    environ = b"\0" + _read(f"/proc/{pid}/environ")
    session = re.search(rb"\0MONARCH_SESSION=([0-9a-f]+)", environ)
    if name.startswith(b"monarch-launche"):
        session = re.search(rb"--session=([0-9a-f]+)", _read(f"/proc/{pid}/cmdline"))
    return Process(
        pid,
        int(fields[1]),
        fields[0].decode(),
        int(fields[19]),
        int(fields[17]),
        name.decode(errors="replace"),
        b"\0" + mark + b"\0" in environ,
        session[1].decode() if session else "",
    )


class Census:
    """Finds all processes of one test. Launchers have no mark; they are known by descent, then by their session."""

    def __init__(self) -> None:
        self.mark = f"MONARCH_TEST_MARK={uuid.uuid4().hex}".encode()
        self.sessions: set[str] = set()
        # One in the middle of its end has no environment any more.
        self._seen: dict[int, int] = {}

    def environment(self) -> dict[str, str]:
        name, value = self.mark.decode().split("=")
        return {name: value}

    def take(self) -> dict[int, Process]:
        """Those that are alive now; the test's own process is none of them."""
        seen = [look_at(int(name), self.mark) for name in os.listdir("/proc") if name.isdigit()]
        processes = {p.pid: p for p in seen if p is not None and p.pid != os.getpid()}
        self.sessions |= {p.session for p in processes.values() if p.marked and p.session}
        ours = {p.pid for p in processes.values() if p.marked or p.session and p.session in self.sessions}
        ours |= {pid for pid, p in processes.items() if self._seen.get(pid) == p.started}
        while more := {p.pid for p in processes.values() if p.parent in ours} - ours:
            ours |= more
        self.sessions |= {processes[pid].session for pid in ours if processes[pid].session}
        self._seen |= {pid: processes[pid].started for pid in ours}
        return {pid: processes[pid] for pid in ours if not processes[pid].ended()}

    def named(self, prefix: str) -> list[int]:
        return sorted(p.pid for p in self.take().values() if p.name.startswith(prefix))

    def wait_gone(self, timeout: float = GONE_S, *, but: set[int] | None = None) -> float:
        """Seconds until none was left, beside `but`."""
        started = time.monotonic()
        while left := {pid: p for pid, p in self.take().items() if pid not in (but or ())}:
            rest = started + timeout - time.monotonic()
            assert rest > 0, f"left after {timeout} s: {sorted(left.values(), key=lambda p: p.pid)}"
            wait_any_exit(left, rest)
        return time.monotonic() - started

    def cgroups(self) -> list[str]:
        """Directories of this test's sessions, in the cgroup that the test is in."""
        own = re.search(r"^0::(.*)$", pathlib.Path("/proc/self/cgroup").read_text(), re.MULTILINE)
        mounts = re.findall(
            r"^\S+ \S+ \S+ \S+ (\S+) .* - cgroup2 ", _read("/proc/self/mountinfo").decode(), re.M
        )
        if own is None or not mounts:
            return []
        root = pathlib.Path(mounts[0] + own[1])
        return [str(p) for p in root.glob("monarch-session-*") if p.name.rpartition("-")[2] in self.sessions]


def wait_any_exit(pids: dict[int, Process], timeout: float) -> None:
    poll = select.poll()
    with contextlib.ExitStack() as stack:
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                return
            stack.callback(os.close, fd)
            poll.register(fd, select.POLLIN)
        poll.poll(timeout * 1000)


def wait_exit(pid: int, timeout: float) -> bool:
    """Whether it ended within the time."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], timeout)[0])
    finally:
        os.close(fd)


def resources(pid: int) -> dict[str, int]:
    """What a leak would grow: fds, threads, resident KiB, and children that nobody reaped."""
    status = _read(f"/proc/{pid}/status").decode()
    fields = {key: int(value) for key, value in re.findall(r"^(Threads|VmRSS):\s+(\d+)", status, re.M)}
    children = _read(f"/proc/{pid}/task/{pid}/children").split()
    zombies = [c for c in children if b") Z " in _read(f"/proc/{int(c)}/stat")]
    return {
        "fds": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": fields["Threads"],
        "rss_kib": fields["VmRSS"],
        "zombies": len(zombies),
    }
