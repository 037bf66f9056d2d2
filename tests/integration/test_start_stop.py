"""Meshes come and go: the daemon, the launcher and the client stay as they were."""

from __future__ import annotations

import pytest
from census import resources
from live import FULL, Client, Live

ROUNDS = 1000 if FULL else 100
WARM_UP = 20


def look(client: Client) -> dict[str, dict[str, int]]:
    pids = {"monarchd": client.daemon(), "launcher": client.launcher(), "client": client.pid}
    return {name: resources(pid) for name, pid in pids.items()}


@pytest.mark.timeout(560)
def test_rounds_leak_nothing(live: Live) -> None:
    client = live.client()
    client.ask(f"rounds({WARM_UP})", 60)
    before = look(client)
    client.ask(f"rounds({ROUNDS})", 550)
    after = look(client)
    print(before, after, sep="\n")
    for name, then in before.items():
        now = after[name]
        # One connection or helper thread may be on its way in either look.
        assert now["fds"] <= then["fds"] + 2, (name, then, now)
        assert now["threads"] <= then["threads"] + 2, (name, then, now)
        assert now["zombies"] == 0, (name, now)
        assert now["rss_kib"] <= then["rss_kib"] + 2048 + 4 * ROUNDS, (name, then, now)
    assert client.finish() == 0
    live.assert_gone()


@pytest.mark.timeout(560)
def test_sessions_leak_nothing_in_a_shared_daemon(live: Live) -> None:
    daemon = live.daemon()

    def one(number: int) -> None:
        client = live.client(address=daemon.address)
        client.start_victims(2)
        if number % 2:
            client.kill()
            client.process.wait()
        else:
            assert client.finish() == 0
        client.close()
        live.census.wait_gone(but={daemon.pid})

    for number in range(4):
        one(number)
    before = resources(daemon.pid)
    for number in range(100 if FULL else 10):
        one(number)
    after = resources(daemon.pid)
    # The last sessions may have ended in this moment: after some more answers their launchers are reaped and their
    # connections closed. What leaks stays.
    for _ in range(50):
        if not after["zombies"] and after["fds"] <= before["fds"] + 2:
            break
        live.ctl("status", "--address", daemon.address)
        after = resources(daemon.pid)
    print(before, after, sep="\n")
    assert after["fds"] <= before["fds"] + 2
    assert after["threads"] <= before["threads"] + 2
    assert after["zombies"] == 0
    assert after["rss_kib"] <= before["rss_kib"] + 4096
