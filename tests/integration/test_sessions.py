"""`monarchctl sessions` and `monarchctl stop`: one session ends by its ladder, and its program hears why."""

from __future__ import annotations

import json
import os
import pathlib
import signal
from typing import Any

import pytest
from census import wait_exit
from live import Client, Daemon, Live, read_fifo

STOPPED = f"stopped by monarchctl (uid {os.getuid()})"


@pytest.fixture(params=["private", "shared"])
def daemon(live: Live, request: pytest.FixtureRequest) -> Daemon | None:
    return live.daemon() if request.param == "shared" else None


@pytest.fixture
def client(live: Live, daemon: Daemon | None) -> Client:
    client = live.client(address=daemon.address if daemon else "private")
    client.start_victims(2)
    return client


def address_of(live: Live, daemon: Daemon | None) -> str:
    return daemon.address if daemon else live.private_address()


def session_of(client: Client) -> str:
    return str(client.ask("process().runtime.session"))


def sessions(live: Live, address: str) -> dict[int, dict[str, Any]]:
    (daemon,) = json.loads(live.ctl("sessions", "--json", "--address", address).stdout)["daemons"]
    return {int(session["client_pid"]): session for session in daemon["tree"]["sessions"]}


def test_each_program_is_a_line(live: Live, daemon: Daemon | None, client: Client) -> None:
    address = address_of(live, daemon)
    shown = sessions(live, address)[client.pid]
    assert (shown["session"], shown["state"], shown["guest"]) == (session_of(client), "running", False)
    assert (int(shown["uid"]), len(shown["procs"])) == (os.getuid(), 2)
    text = live.ctl("sessions", "--address", address).stdout
    assert f"{session_of(client)[:8]}  running" in text and f"pid {client.pid} " in text


def clean(client: Client, live: Live, cleanup: str = "") -> str:
    """Actors that write when they clean up; gives the file."""
    log = str(live.folder / "log")
    client.ask(f"cleaning = procs.spawn('cleaning', Cleaning, {log!r}, 'member', {cleanup!r})")
    client.ask("cleaning.note.call('is there').get(timeout=20)")
    return log


def hang(client: Client, live: Live, mesh: str) -> int:
    fifo = live.fifo(f"in-{mesh}")
    pending = client.begin(f"{mesh}.slice(gpus=0).hang.call_one({str(fifo)!r}).get()")
    read_fifo(fifo)
    return pending


def test_a_stop_cleans_up_leaves_nothing_and_tells_the_program(
    live: Live, daemon: Daemon | None, client: Client
) -> None:
    address = address_of(live, daemon)
    other = live.client(address=daemon.address) if daemon else None
    if other is not None:
        other.start_victims(1)
    log = clean(client, live)
    gone = [*client.ask("procs.pids()"), client.launcher()]
    pending = hang(client, live, "victims")
    told = live.ctl("stop", session_of(client)[:12], "--grace", "1s", "--address", address).stdout
    assert "has ended: 2 processes, 2 by themselves" in told, told
    assert all(wait_exit(pid, 0) for pid in gone)
    assert pathlib.Path(log).read_text().count("member cleaned") == 2
    error = client.error(pending)
    assert error.fields["kind"] == "stopped" and STOPPED in str(error)
    for failure in client.ask("failures(1)"):
        assert STOPPED in failure["reason"], failure
    error = client.fails("procs.spawn('more', Victim).ping.call().get(timeout=20)")
    assert STOPPED in str(error), error
    if other is not None:
        assert list(sessions(live, address)) == [other.pid]
        assert other.ask("victims.ping.call().get(timeout=20).values()") == [0]
        assert other.finish() == 0


def test_what_does_not_end_is_killed_and_named(live: Live, daemon: Daemon | None, client: Client) -> None:
    address = address_of(live, daemon)
    clean(client, live, "threading.Event().wait()")
    pids = client.ask("procs.pids()")
    told = live.ctl("stop", session_of(client), "--grace", "500ms", "--json", "--address", address).stdout
    stopped = json.loads(told)
    assert stopped["session"] == session_of(client)
    ends = {int(end["pid"]): end for end in stopped["stopped"]["ends"]}
    assert sorted(ends) == sorted(pids)
    assert {end["code"] for end in ends.values()} <= {signal.SIGTERM, signal.SIGKILL}


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["0123456789"], 5, "no session 0123456789 is known"),
        (["0123456789", "--grace", "soon"], 2, "is no duration"),
        ([], 2, "SESSION is required"),
    ],
)
def test_a_stop_of_nothing_says_so(live: Live, arguments: list[str], code: int, text: str) -> None:
    daemon = live.daemon()
    client = live.client(address=daemon.address)
    client.start_victims(1)
    done = live.ctl("stop", *arguments, "--address", daemon.address, check=False)
    assert done.returncode == code and text in done.stderr, done
    assert client.ask("victims.ping.call().get(timeout=20).values()") == [0]
    done = live.ctl("stop", session_of(client), "--grace", "20m", "--address", daemon.address, check=False)
    assert done.returncode == 2 and "at most" in done.stderr, done


def test_a_session_may_be_one_of_a_daemon_that_does_not_answer(live: Live) -> None:
    daemon = live.daemon()
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        done = live.ctl("stop", "0123", "--timeout", "0.2", "--address", daemon.address, check=False)
        assert done.returncode == 3 and "no answer within" in done.stderr, done
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
