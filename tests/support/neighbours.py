"""A shared daemon and a session beside the one that a test breaks: nothing of what happens there may touch it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator

import pytest
from census import GONE_S, resources
from live import Live


class Neighbours:
    def __init__(self, live: Live) -> None:
        self.live = live
        self.daemon = live.daemon()
        self.client = live.client(address=self.daemon.address)
        self._pids = self.client.start_victims(2)
        self._calls = 0
        self._files = self._look()
        self._first: dict[str, int] = {}

    @property
    def address(self) -> str:
        return self.daemon.address

    def _look(self) -> set[str]:
        """All files of the daemon but the logs of workers, of which it keeps the newest."""
        return {
            str(pathlib.Path(folder, name))
            for folder, _, names in os.walk(self.daemon.directory)
            for name in names
            if not name.startswith("workers-")
        }

    def _wait_for_files(self) -> None:
        """The daemon removes a session's a little after the last process has ended."""
        deadline = time.monotonic() + GONE_S
        directory = os.open(self.daemon.directory, os.O_RDONLY)
        before = signal.signal(signal.SIGIO, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
        try:
            fcntl.fcntl(directory, fcntl.F_NOTIFY, fcntl.DN_DELETE | fcntl.DN_MULTISHOT)
            while (more := self._look() ^ self._files) and time.monotonic() < deadline:
                signal.sigtimedwait([signal.SIGIO], deadline - time.monotonic())
            assert more == set()
        finally:
            os.close(directory)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGIO])
            signal.signal(signal.SIGIO, before)

    def assert_untouched(self) -> None:
        """The same processes, with the state that they had, of which no failure was told; no file is more."""
        self._calls += 1
        self.client.ask("victims.take.call(0).get(timeout=10)")
        assert self.client.ask("victims.count.call().get(timeout=10).values()") == [self._calls] * 2
        assert list(self.client.ask("procs.pids()")) == self._pids
        assert self.client.ask("failures_so_far()") == []
        assert self.daemon.process.poll() is None
        self._wait_for_files()
        # Its end takes the daemon a few turns, and this some more.
        self.client.ask("spawn(1).stop().get(timeout=20)", 60)
        self._first = self._first or resources(self.daemon.pid)

    def assert_flat(self) -> None:
        """The daemon holds no more than after the first cell."""
        if self._first:
            last = resources(self.daemon.pid)
            assert last["fds"] <= self._first["fds"], (self._first, last)
            assert last["threads"] <= self._first["threads"] + 2, (self._first, last)  # of gRPC's pool


@pytest.fixture(scope="module")
def neighbours() -> Iterator[Neighbours]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mt-"))
    live = Live(folder)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(live.close)
        found = Neighbours(live)
        yield found
        found.assert_flat()
        assert found.client.finish() == 0
        live.close()
        live.assert_gone()
