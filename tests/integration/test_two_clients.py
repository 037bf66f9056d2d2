"""Two clients side by side, each with a daemon of its own and both with a shared one: neither notices the other."""

from __future__ import annotations

import functools
import json
import signal
from typing import Any

import pytest
from census import wait_exit
from live import EVENT_S, Client, Daemon, Live


@pytest.fixture(params=["private", "shared"])
def daemon(live: Live, request: pytest.FixtureRequest) -> Daemon | None:
    return live.daemon() if request.param == "shared" else None


@pytest.fixture
def pair(live: Live, daemon: Daemon | None) -> list[Client]:
    clients = [live.client(address=daemon.address if daemon else "private") for _ in range(2)]
    for client in clients:
        client.start_victims(2)
    return clients


def assert_works(client: Client) -> None:
    assert client.ask("victims.ping.call().get(timeout=10).values()") == [0, 1]
    assert client.ask("failures_so_far()") == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_is_killed(live: Live, daemon: Daemon | None, pair: list[Client], number: signal.Signals) -> None:
    dying, living = pair
    gone = [*dying.ask("procs.pids()"), dying.launcher()]
    kept = [*living.ask("procs.pids()"), living.launcher()]
    dying.kill(number)
    dying.process.wait(EVENT_S)
    assert all(wait_exit(pid, 2) for pid in gone)
    assert not any(wait_exit(pid, 0) for pid in kept)
    assert_works(living)
    assert len(living.start_victims(2)) == 2
    assert_works(living)
    assert living.finish() == 0
    if daemon is None:
        live.assert_gone()
        return
    live.census.wait_gone(but={daemon.pid})
    assert live.census.cgroups() == []
    # It serves the next one.
    third = live.client(address=daemon.address)
    third.start_victims(2)
    assert third.finish() == 0
    assert not wait_exit(daemon.pid, 0)


def test_one_ends(pair: list[Client]) -> None:
    assert pair[0].finish() == 0
    assert_works(pair[1])
    assert pair[1].finish() == 0


def test_a_worker_of_one_is_killed(pair: list[Client]) -> None:
    pair[0].fails("victims.slice(gpus=1).die.call_one('SIGKILL').get()")
    assert len(pair[0].ask("failures(1)")) == 1
    assert_works(pair[1])


def test_a_reference_of_the_other_reaches_nothing(pair: list[Client]) -> None:
    """Sessions are apart, also on one daemon: what leaks into the other's hands is of no use there."""
    text = pair[0].ask("pickled(victims)")
    pair[1].ask(f"stolen = unpickled({text!r})")
    error = pair[1].fails("stolen.ping.call().get(timeout=10)")
    assert error.is_a("SupervisionError"), error
    assert pair[0].ask("victims.count.call().get().values()") == [0, 0]
    assert_works(pair[0])
    assert_works(pair[1])


def sessions_of(answer: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {
        int(session["client_pid"]): session
        for daemon in answer["daemons"]
        for session in daemon["tree"]["sessions"]
    }


def test_monarchctl_shows_both(live: Live, daemon: Daemon | None, pair: list[Client]) -> None:
    # Without an address it looks for all of this user, of which one may end meanwhile.
    address = ["--address", daemon.address] if daemon else []
    ctl = functools.partial(live.ctl, check=daemon is not None)
    for command in ("ps", "tree"):
        sessions = sessions_of(json.loads(ctl(command, "--json", *address).stdout))
        for client in pair:
            session = sessions[client.pid]
            assert [int(p["pid"]) for p in session["procs"]] == client.ask("procs.pids()")
            assert {p["phase"] for p in session["procs"]} == {"ready"}
            assert int(session["launcher_pid"]) == client.launcher()
            assert [a["mesh"] for a in session["actors"]].count("victims") == 2
        text = ctl(command, *address).stdout
        assert all(str(pid) in text for client in pair for pid in client.ask("procs.pids()"))
    status = json.loads(ctl("status", "--json", *address).stdout)["daemons"]
    mine = [d for d in status if str(live.folder) in d["address"]]
    assert all(d["answered"] for d in mine)
    if daemon:
        assert [(int(d["status"]["pid"]), d["status"]["sessions"]) for d in mine] == [(daemon.pid, 2)]
        assert not mine[0]["status"]["is_private"]
    else:
        assert {int(d["status"]["pid"]) for d in mine} == {client.daemon() for client in pair}
    assert sum(d["status"]["procs"] for d in mine) == 4


def test_the_shared_daemon_stops(live: Live) -> None:
    daemon = live.daemon()
    clients = [live.client(address=daemon.address) for _ in range(2)]
    for client in clients:
        client.start_victims(2)
    daemon.process.terminate()
    assert daemon.process.wait(EVENT_S) == 0
    live.census.wait_gone(but={client.pid for client in clients})
    for client in clients:
        assert client.fails("victims.ping.call().get(timeout=10)").is_a("SupervisionError")
        assert client.finish() == 0
    live.assert_gone()
