"""For tests in a guest: sessions with a cgroup of their own, below one that is delegated to whoever runs the tests."""

from __future__ import annotations

import contextlib
import pathlib
import select
import sys
import time
from collections.abc import Iterator

import monarch
import pytest

TESTS = pathlib.Path(__file__).parents[2]
sys.path += [str(TESTS / "support"), str(TESTS / "fault")]

from census import GONE_S  # noqa: E402
from live import EVENT_S, Live, opened  # noqa: E402
from matrix import (  # noqa: E402, F401
    outcome,
    pytest_runtest_makereport,
    pytest_terminal_summary,
)

CGROUPS = pathlib.Path("/sys/fs/cgroup")
CONTROLLERS = ("memory", "pids")


def own_cgroup() -> pathlib.Path:
    (line,) = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
    return CGROUPS / line.partition("::")[2].lstrip("/")


@pytest.fixture(scope="session")
def delegated() -> pathlib.Path:
    """Nobody is in it, so that it gives controllers to those below."""
    top = own_cgroup()
    (top / "tests").mkdir()
    for pid in (top / "cgroup.procs").read_text().split():
        (top / "tests/cgroup.procs").write_text(pid)
    (top / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in CONTROLLERS))
    return top


class Session:
    """A client of a shared daemon whose launchers get a cgroup, as a unit would give it to them. `others`, one process,
    has no limits."""

    def __init__(self, live: Live, group: pathlib.Path) -> None:
        self.live, self.group = live, group
        launcher = live.folder / "launcher"
        program = pathlib.Path(monarch.__file__).parent / "bin/monarch-launcher"
        launcher.write_text(
            f'#!/bin/sh\nmkdir {group} && echo 0 > {group}/cgroup.procs || exit 1\nexec {program} "$@"\n'
        )
        launcher.chmod(0o755)
        self.daemon = live.daemon("--launcher", str(launcher))
        self.client = live.client(address=self.daemon.address)
        self.client.ask("(others, unharmed) = start_victims(1)", EVENT_S)
        self._counts: dict[tuple[str, str], int] = {}

    def begin(self) -> None:
        self.client.ask("forget_failures()")
        for file, key in (("memory.events", "oom_kill"), ("memory.events", "oom_group_kill")):
            self._counts[file, key] = self._count(file, key)

    def _count(self, file: str, key: str) -> int:
        lines = (self.group / file).read_text().splitlines()
        return {line.split()[0]: int(line.split()[1]) for line in lines}[key]

    def risen(self, file: str, key: str) -> int:
        """In the session's cgroup, with all that has been below it, since the test began."""
        return self._count(file, key) - self._counts[file, key]

    def leaves(self) -> list[pathlib.Path]:
        """Of the workers."""
        return sorted(self.group.glob("monarch-session-*/proc-*"))

    def wait_for_leaves(self, count: int) -> None:
        """Bounded by the promise that what a process leaves behind goes."""
        deadline = time.monotonic() + GONE_S
        while len(leaves := self.leaves()) > count:
            assert (left := deadline - time.monotonic()) > 0, leaves
            with contextlib.suppress(OSError), (leaves[-1] / "cgroup.events").open() as events:
                # The kernel tells of the last process's end, not of the directory's.
                poll = select.poll()
                poll.register(events, select.POLLPRI)
                poll.poll(1000 * min(left, 0.2))

    def why(self, target: str) -> str:
        return self.live.ctl("why", f"--address={self.daemon.address}", target).stdout

    def why_json(self) -> str:
        return self.live.ctl("why", "--json", f"--address={self.daemon.address}").stdout

    def end(self) -> None:
        """Nothing is left of the client and of its session, and neither is a cgroup of theirs."""
        assert self.client.finish() == 0
        self.live.census.wait_gone(but={self.daemon.pid})
        assert [p.name for p in self.group.iterdir() if p.is_dir()] == ["monarch-launcher"]


@pytest.fixture(scope="module")
def shared_session(delegated: pathlib.Path) -> Iterator[Session]:
    """One for a file: starting it takes most of the time."""
    group = delegated / "session"
    with opened() as live:
        session = Session(live, group)
        yield session
        session.end()
    (group / "monarch-launcher").rmdir()
    group.rmdir()


@pytest.fixture
def session(shared_session: Session) -> Session:
    shared_session.begin()
    return shared_session
