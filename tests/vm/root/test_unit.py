"""monarchd as a unit of systemd: users' sessions are units beside it, and a stop leaves nothing of them."""

from __future__ import annotations

import os
import pathlib
import pwd
import re
import signal
import stat
import subprocess
import sys

from census import wait_exit
from conftest import (
    ADDRESS,
    CGROUPS,
    USER,
    Client,
    Live,
    journal,
    main_pid,
    sessions,
    start_client,
    systemctl,
    users_processes,
)
from live import BIN, EVENT_S


def unit_of(pid: int) -> str:
    return pathlib.Path(f"/proc/{pid}/cgroup").read_text().partition("::")[2].strip()


def test_it_is_started_once_it_serves(daemon: None) -> None:
    """Type=notify: what comes after it finds its sockets."""
    modes = {
        name: stat.S_IMODE(os.stat(f"/run/monarch/{name}").st_mode) for name in ("native.sock", "grpc.sock")
    }
    assert modes == {"native.sock": 0o666, "grpc.sock": 0o660}
    assert "monarchd started" in journal()
    assert unit_of(main_pid()) == "/system.slice/monarchd.service"


def test_a_users_processes_are_in_a_unit_of_their_session(live: Live, client: Client) -> None:
    pids = client.start_victims(2)
    (unit,) = sessions()
    user = pwd.getpwnam(USER)
    assert re.fullmatch(rf"/monarch\.slice/{unit}/monarch-session-\w+/proc-\S+", unit_of(pids[0]))
    assert unit_of(client.launcher()) == f"/monarch.slice/{unit}/monarch-launcher"
    for pid in (*pids, client.launcher()):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        assert re.search(rf"^Uid:\t{user.pw_uid}\t{user.pw_uid}\t{user.pw_uid}\t", status, re.M)
        assert re.search(rf"^Gid:\t{user.pw_gid}\t", status, re.M)
        # The daemon's sandbox is not theirs.
        assert os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/1/ns/mnt")
    assert os.readlink(f"/proc/{main_pid()}/ns/mnt") != os.readlink("/proc/1/ns/mnt")
    assert client.ask(f"victims.ping.call().get(timeout={EVENT_S}).values()") == [0, 1]
    assert client.finish() == 0
    live.census.wait_gone()
    assert users_processes() == {}


def test_limits_are_held_there(live: Live, client: Client) -> None:
    client.start_victims(1)
    client.ask("limited = this_host().spawn_procs({'gpus': 2}, memory_max=256 << 20, pids_max=60)")
    client.ask("actors = limited.spawn('actors', Victim)")
    pid = client.ask(f"actors.slice(gpus=1).pid.call_one().get(timeout={EVENT_S})")
    assert (CGROUPS / unit_of(pid)[1:] / "memory.max").read_text().strip() == str(256 << 20)
    code = "import limit_faults; limit_faults.exhaust_memory()"
    error = client.fails(f"actors.slice(gpus=1).run.call_one({code!r}).get(timeout={EVENT_S})")
    assert (error.fields["kind"], error.fields["pid"]) == ("out_of_memory", pid), error.fields
    # systemd would stop all of a unit in which the kernel has killed one process.
    assert client.ask(f"actors.slice(gpus=0).ping.call_one().get(timeout={EVENT_S})") == 0
    assert client.ask(f"victims.ping.call().get(timeout={EVENT_S}).values()") == [0]


def test_a_stop_leaves_nothing_running(live: Live, client: Client) -> None:
    """Neither what serves calls, nor what has left its process group, nor what takes no TERM."""
    pids = client.start_victims(2)
    client.ask("limited = this_host().spawn_procs({'gpus': 1}, pids_max=40)")
    client.ask("actors = limited.spawn('actors', Victim)")
    bomb = "import limit_faults; limit_faults.fork_bomb()"
    client.ask(f"actors.run.call({bomb!r}).get(timeout={EVENT_S}) and None")
    assert len(users_processes()) > 40
    number = client.begin("victims.run.call('import threading; threading.Event().wait()').get()")
    systemctl("stop", "monarchd")
    assert set(users_processes()) == {client.pid}
    assert all(wait_exit(pid, 0) for pid in pids)
    assert sessions() == []
    assert not list(CGROUPS.glob("monarch.slice/monarch-*"))
    assert client.error(number).is_a("SupervisionError")


def test_users_do_not_see_each_other(live: Live, client: Client) -> None:
    client.start_victims(1)
    live.folder.chmod(0o755)
    other = start_client(live, "nobody")
    (pid,) = other.start_victims(1)
    assert len(sessions()) == 2
    assert pathlib.Path(f"/proc/{pid}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
    # Root sees both; who is neither root nor an operator sees nothing.
    assert live.ctl("tree", "--address", ADDRESS).stdout.count("live_actors.Victim") == 2
    asked = [str(BIN / "monarchctl"), "tree", "--address", ADDRESS]
    done = subprocess.run(asked, user=USER, capture_output=True, text=True, timeout=EVENT_S)
    assert done.returncode == 3 and "Permission denied" in done.stdout, done
    assert "Victim" not in done.stdout
    logs = {path: path.stat() for path in pathlib.Path("/run/monarch/users").iterdir()}
    assert {int(path.name): (info.st_uid, info.st_mode & 0o777) for path, info in logs.items()} == {
        info.st_uid: (info.st_uid, 0o700) for info in logs.values()
    }
    assert len(logs) == 2


def fails(live: Live, *before: str) -> str:
    """What is said to a client that is started so."""
    code = "from live_actors import *; start_victims(1)"
    command = [*before, sys.executable, "-c", code]
    done = subprocess.run(
        command, env=live.environment(), capture_output=True, text=True, timeout=2 * EVENT_S
    )
    assert done.returncode == 1, done
    return done.stderr


def test_who_is_not_served_is_told_how_to_be(live: Live) -> None:
    text = fails(live)
    assert "starts no processes of root unless it runs with --allow-root" in text, text
    assert "MONARCH_ADDRESS=private starts a daemon of its own" in text
    uid = str(pwd.getpwnam(USER).pw_uid)
    text = fails(live, "unshare", "--mount", "setpriv", "--reuid", uid, "--regid", uid, "--clear-groups")
    assert "serves no client in a container: its mnt namespace is not the host's" in text, text
    assert sessions() == []


def test_sessions_go_on_over_a_restart_and_a_kill_of_the_unit(live: Live, client: Client) -> None:
    pids = client.start_victims(2)
    fifo = live.fifo("until")
    number = client.begin(f"victims.slice(gpus=1).wait_for.call_one({str(fifo)!r}).get()")
    before = main_pid()
    systemctl("restart", "monarchd")
    assert "monarchd leaves its sessions to the next" in journal()
    assert main_pid() not in (0, before)
    ping = f"victims.slice(gpus=0).ping.call_one().get(timeout={EVENT_S})"
    assert client.ask(ping) == 0
    client.ask("more = spawn(1)", 3 * EVENT_S)
    killed = main_pid()
    os.kill(killed, signal.SIGKILL)
    assert wait_exit(killed, EVENT_S)
    systemctl("start", "monarchd")  # Restart=on-failure may be as far; done when it serves
    assert main_pid() not in (0, killed)
    assert client.ask(ping) == 0
    client.ask(f"more.stop().get(timeout={EVENT_S})", 3 * EVENT_S)
    assert client.ask("procs.pids()") == pids
    with open(fifo, "w"):
        assert client.result(number) == 0
    assert len(sessions()) == 1
    assert client.finish() == 0
    live.census.wait_gone()
    assert users_processes() == {}
