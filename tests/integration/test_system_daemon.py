"""The daemon for all users where there is no systemd: tests/vm has what it does where there is one."""

from __future__ import annotations

import os
import pathlib
import stat

import pytest
from live import EVENT_S, Live

pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="serves all users as root only"),
    pytest.mark.skipif(pathlib.Path("/run/systemd/system").exists(), reason="systemd runs here"),
]


def test_it_starts_and_says_why_it_does_without_systemd(live: Live) -> None:
    daemon = live.daemon("--system", "--allow-root")
    log = daemon.log.read_text()
    assert (
        'launchers are children of monarchd, and of its user alone reason="systemd does not run here' in log
    )
    assert stat.S_IMODE((daemon.directory / "native.sock").stat().st_mode) == 0o666


def _looks_at_pid_1() -> bool:
    """A container's root may not."""
    try:
        return bool(os.readlink("/proc/1/ns/user"))
    except PermissionError:
        return False


@pytest.mark.skipif(not _looks_at_pid_1(), reason="needs CAP_SYS_PTRACE")
def test_it_serves_its_own_user(live: Live) -> None:
    daemon = live.daemon("--system", "--allow-root")
    client = live.client(address=daemon.address)
    client.start_victims(1)
    assert client.ask(f"victims.ping.call().get(timeout={EVENT_S}).values()") == [0]
    assert client.finish() == 0
    assert list((daemon.directory / "users").iterdir()) == [daemon.directory / "users/0"]


def test_root_is_not_served_unless_that_is_allowed(live: Live) -> None:
    daemon = live.daemon("--system")
    error = live.client(address=daemon.address).fails("start_victims(1)")
    assert "starts no processes of root unless it runs with --allow-root" in error.fields["text"]
