"""For tests in a guest that use its systemd: monarchd installed as its unit says."""

from __future__ import annotations

import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import monarch
import pytest

ROOT = pathlib.Path(__file__).parents[3]
sys.path += [str(ROOT / "tests/support")]

from live import EVENT_S, Client, Live, opened  # noqa: E402

DEPLOY = ROOT / "deploy/systemd"
USER = "tester"
ADDRESS = "unix:/run/monarch"
CGROUPS = pathlib.Path("/sys/fs/cgroup")


def systemctl(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, timeout=3 * EVENT_S)
    assert not check or done.returncode == 0, done.stderr + journal()
    return done.stdout


def journal() -> str:
    """What systemd and the daemon have said."""
    done = subprocess.run(
        ["journalctl", "--no-pager", "-n", "60", "-u", "monarchd", "-u", "monarch-session-*"],
        capture_output=True,
        text=True,
        timeout=EVENT_S,
    )
    return done.stdout


def main_pid() -> int:
    return int(systemctl("show", "--property=MainPID", "--value", "monarchd"))


def sessions() -> list[str]:
    """Units."""
    listed = systemctl("list-units", "--all", "--plain", "--no-legend", "monarch-session-*")
    return re.findall(r"^(\S+)", listed, re.M)


def users_processes() -> dict[int, str]:
    """Those of the ordinary user."""
    uid = pwd.getpwnam(USER).pw_uid
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if path.stat().st_uid == uid:
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except FileNotFoundError:
            continue
    return found


@pytest.fixture(scope="session")
def installed() -> None:
    """As a package would do it."""
    for name in ("monarchd", "monarch-launcher", "monarchctl"):
        shutil.copy(pathlib.Path(monarch.__file__).parent / "bin" / name, "/usr/bin")
    shutil.copy(DEPLOY / "monarchd.service", "/usr/lib/systemd/system")
    shutil.copy(DEPLOY / "monarch.slice", "/usr/lib/systemd/system")
    subprocess.run(["systemd-sysusers", str(DEPLOY / "sysusers.conf")], check=True, timeout=EVENT_S)
    subprocess.run(
        ["systemd-tmpfiles", "--create", str(DEPLOY / "tmpfiles.conf")], check=True, timeout=EVENT_S
    )
    systemctl("daemon-reload")


@pytest.fixture
def daemon(installed: None) -> Iterator[None]:
    systemctl("start", "monarchd")
    yield
    systemctl("stop", "monarchd", check=False)
    assert systemctl("show", "--property=ActiveState", "--value", "monarchd").strip() == "inactive", journal()
    assert sessions() == []


@pytest.fixture
def live(daemon: None) -> Iterator[Live]:
    with opened() as found:
        os.chown(found.folder, pwd.getpwnam(USER).pw_uid, -1)
        yield found


def start_client(live: Live, user: str = USER) -> Client:
    """It looks for its daemon as any program does."""
    entry = pwd.getpwnam(user)
    return live.client(address="", user=entry.pw_uid, group=entry.pw_gid, extra_groups=[])


@pytest.fixture
def client(live: Live) -> Client:
    return start_client(live)
