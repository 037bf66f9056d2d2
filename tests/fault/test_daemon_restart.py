"""A shared daemon is killed and another takes over: processes, links and calls go on, and nothing is forgotten."""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import shutil
import signal
from collections.abc import Callable
from typing import Any

import monarch
import pytest
from census import GONE_S, wait_exit
from live import EVENT_S, FULL, Client, Daemon, Live

PING = "victims.ping.call().get(timeout=20).values()"


def kill(daemon: Daemon, number: int = signal.SIGKILL) -> None:
    daemon.process.send_signal(number)
    daemon.process.wait(EVENT_S)


def start(live: Live, count: int = 3) -> tuple[Daemon, Client, list[int]]:
    daemon = live.daemon()
    client = live.client(address=daemon.address)
    return daemon, client, client.start_victims(count)


def finish(live: Live, client: Client, daemon: Daemon) -> None:
    assert client.finish() == 0
    live.census.wait_gone(GONE_S, but={daemon.pid})
    assert live.census.cgroups() == []
    assert list(daemon.directory.glob("session-*")) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGHUP])
def test_calls_go_on_without_it_and_the_next_one_takes_over(live: Live, number: signal.Signals) -> None:
    daemon, client, pids = start(live)
    launcher = client.launcher()
    kill(daemon, number)
    for _ in range(3):
        assert client.ask(PING) == [0, 1, 2]
    following = live.daemon()
    client.ask("(more, others) = start_victims(2)", 60)
    assert client.ask("others.ping.call().get(timeout=20).values()") == [0, 1]
    assert client.ask(PING) == [0, 1, 2]
    assert client.ask("procs.pids()") == pids
    assert client.launcher() == launcher
    assert client.ask("failures_so_far()") == []
    client.ask("procs.stop().get(timeout=20)")
    assert all(wait_exit(pid, GONE_S) for pid in pids)
    finish(live, client, following)


def test_a_pending_call_is_answered_after_the_restart(live: Live) -> None:
    daemon, client, _ = start(live, 2)
    fifo = live.fifo("until")
    pending = client.begin(f"victims.slice(gpus=1).wait_for.call_one({str(fifo)!r}).get()")
    kill(daemon)
    following = live.daemon()
    with open(fifo, "w"):
        assert client.result(pending) == 0
    finish(live, client, following)


def test_processes_that_a_policy_started_again_go_on(live: Live) -> None:
    daemon, client, _ = start(live, 1)
    client.ask("(again, restarted, restarts) = start_restarted(2)", 60)
    os.kill(client.ask("again.pids()")[1], signal.SIGKILL)
    assert client.ask("restarts.get(timeout=60).incarnation", 60) == 2
    pids = client.ask("again.pids()")
    kill(daemon)
    following = live.daemon()
    assert client.ask(PING) == [0]
    assert client.ask("restarted.ping.call().get(timeout=60).values()", 60) == [0, 1]
    assert client.ask("again.pids()") == pids
    assert client.ask("failures_so_far()") == []
    finish(live, client, following)


def test_a_worker_that_died_without_it_is_told_with_its_status(live: Live) -> None:
    daemon, client, pids = start(live)
    client.ask("victims.family.call().get()")
    kill(daemon)
    os.kill(pids[1], signal.SIGTERM)
    error = client.fails("victims.slice(gpus=1).ping.call_one().get(timeout=20)")
    assert (error.fields["kind"], error.fields["code"]) == ("signalled", signal.SIGTERM)
    following = live.daemon()
    told = client.ask("failures(1)")
    assert [(failure["kind"], failure["code"]) for failure in told] == [("signalled", signal.SIGTERM)]
    assert client.ask("victims.slice(gpus=2).ping.call_one().get(timeout=20)") == 0
    # Once, also when it is told again.
    kill(following)
    last = live.daemon()
    client.start_victims(1)
    assert len(client.ask("failures_so_far()")) == 1
    finish(live, client, last)


def shown(live: Live, daemon: Daemon) -> list[str]:
    """The tree and the newest failure, without what tells daemons and moments apart."""
    text = live.ctl("tree", "--address", daemon.address).stdout
    text += live.ctl("why", "--address", daemon.address).stdout
    text = re.sub(r"\b\d+(ms|s|m)\b( ago)?", "T", text)
    lines = text.replace(f"pid {daemon.pid}", "pid D").splitlines()
    return [line.rstrip() for line in lines]


SPAWN = "from monarch.actor import this_host; this_host().spawn_procs({'gpus': 1}).stop().get(timeout=20)"


def test_what_it_shows_is_as_before(live: Live) -> None:
    daemon, client, pids = start(live)
    os.kill(pids[1], signal.SIGTERM)
    client.ask("broken = procs.slice(gpus=2).spawn('broken', Raising)")
    client.ask("failures(2)")
    before = shown(live, daemon)
    for what in ("victims", "actors broken:", r"rank 0  pid \d+  failed$"):
        assert any(re.search(what, line) for line in before), before
    kill(daemon)
    following = live.daemon()
    # They and the client are back, once they have asked it for something.
    for rank in (0, 2):
        client.ask(f"victims.slice(gpus={rank}).run.call_one({SPAWN!r}).get(timeout=30)", 60)
    client.ask("spawn(1).stop().get(timeout=20)", 60)
    assert shown(live, following) == before
    finish(live, client, following)


def known(live: Live, daemon: Daemon) -> list[dict[str, Any]]:
    """The failures that it knows, the newest first."""
    (answer,) = json.loads(live.ctl("why", "--json", "--address", daemon.address).stdout)["daemons"]
    return list(answer["failures"]["failures"])


def test_why_knows_what_the_last_one_knew_and_what_came_in_between(live: Live) -> None:
    daemon, client, pids = start(live, 4)
    client.ask("victims.slice(gpus=0).run.broadcast('raise SystemExit(3)')")
    client.ask("failures(1)")
    os.kill(pids[1], signal.SIGTERM)
    client.ask("failures(2)")
    before = known(live, daemon)
    assert [one["event"]["kind"] for one in before] == ["FAILURE_KIND_SIGNALLED", "FAILURE_KIND_EXCEPTION"]
    assert before[0]["lost_actors"] == [
        {"mesh": "victims", "rank": 1, "actor_class": before[1]["event"]["actor_class"]}
    ]
    kill(daemon)
    os.kill(pids[2], signal.SIGKILL)
    client.fails("victims.slice(gpus=2).ping.call_one().get(timeout=20)")
    following = live.daemon()
    client.ask("failures(3)")
    newest, *older = known(live, following)
    assert newest["event"]["pid"] == str(pids[2]) and newest["event"]["code"] == signal.SIGKILL
    assert [(one["mesh"], one["rank"]) for one in newest["lost_actors"]] == [("victims", 2)]
    for was, now in zip(before, older, strict=True):
        now["unix_ms"] = was["unix_ms"]  # A moment later than the event's, which is kept.
        assert now == was
    finish(live, client, following)


def test_a_hang_under_way_is_told_once_and_its_end_too(live: Live) -> None:
    daemon, client, _ = start(live, 1)
    client.ask("import queue; hangs = queue.Queue(); monarch.actor.hang_hook = hangs.put")
    client.ask("slow = procs.spawn('slow', Victim, hung_after_s=0.3)")
    client.ask("later = procs.spawn('later', Victim, hung_after_s=1.5)")
    told = "(lambda hang: (hang.event.mesh, hang.method, hang.recovered))(hangs.get(timeout=20))"
    fifo, other = live.fifo("until"), live.fifo("until")
    pending = client.begin(f"slow.slice(gpus=0).wait_for.call_one({str(fifo)!r}).get()")
    assert client.ask(told) == ["slow", "wait_for", False]
    kill(daemon)
    following = live.daemon()
    client.ask(f"victims.slice(gpus=0).run.call_one({SPAWN!r}).get(timeout=30)", 60)
    client.ask("spawn(1).stop().get(timeout=20)", 60)
    assert [(one["event"]["mesh"], one["hang"]["recovered"]) for one in known(live, following)] == [
        ("slow", False)
    ]
    # Told again, that would come first.
    waiting = client.begin(f"later.slice(gpus=0).wait_for.call_one({str(other)!r}).get()")
    assert client.ask(told) == ["later", "wait_for", False]
    with open(fifo, "w"):
        assert client.result(pending) == 0
    assert client.ask(told) == ["slow", "wait_for", True]
    with open(other, "w"):
        assert client.result(waiting) == 0
    assert client.ask(told) == ["later", "wait_for", True]
    assert len([one for one in known(live, following) if one["event"]["mesh"] == "slow"]) == 1
    finish(live, client, following)


def test_a_client_that_dies_without_it_takes_its_workers_along(live: Live) -> None:
    daemon, client, _ = start(live)
    kill(daemon)
    client.kill()
    client.process.wait(EVENT_S)
    live.census.wait_gone(GONE_S)
    assert live.census.cgroups() == []
    live.daemon()
    assert list(daemon.directory.glob("session-*")) == []


def truncate(path: pathlib.Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def foreign(path: pathlib.Path) -> None:
    path.write_bytes(b"\x7fELF" + bytes(200))


def future(path: pathlib.Path) -> None:
    data = bytearray(path.read_bytes())
    data[8] = 9
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [truncate, foreign, future])
def test_a_damaged_state_file_costs_its_session_only(
    live: Live, damage: Callable[[pathlib.Path], None]
) -> None:
    daemon, client, _ = start(live)
    (path,) = daemon.directory.glob("session-*.state")
    other = live.client(address=daemon.address)
    other.start_victims(2)
    kill(daemon)
    damage(path)
    following = live.daemon()
    assert f"a session is not adopted path={path}" in following.log.read_text().replace('"', "")
    assert other.ask("victims.ping.call().get(timeout=20).values()") == [0, 1]
    assert {failure["kind"] for failure in client.ask("failures(1)")} == {"unreachable"}
    assert client.finish() == 0
    finish(live, other, following)


def test_another_build_takes_over(live: Live) -> None:
    daemon, client, _ = start(live, 2)
    version = live.ctl("--version").stdout.split()[-1]
    other = live.folder / "other" / "monarchd"
    other.parent.mkdir()
    programs = pathlib.Path(monarch.__file__).parent / "bin"
    shutil.copy(programs / "monarch-launcher", other.parent)
    data = (programs / "monarchd").read_bytes()
    assert version.encode() in data
    other.write_bytes(data.replace(version.encode(), b"9" + version.encode()[1:]))
    other.chmod(0o755)
    kill(daemon)
    following = live.daemon(program=other)
    assert client.ask(PING) == [0, 1]
    assert len(client.start_victims(2)) == 2
    assert f"version=9{version[1:]}" in following.log.read_text().replace('"', "")
    finish(live, client, following)


def test_kills_at_any_moment_leave_a_session_whole(live: Live) -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    chance = random.Random(seed)
    daemon, client, _ = start(live, 2)
    fds = []
    for _ in range(100 if FULL else 6):
        work = client.begin("[spawn_call_stop(2) for _ in range(2)]")
        client.wait_for_an_answer(at_most=chance.random() * 0.3)
        kill(daemon)
        daemon = live.daemon()
        assert client.result(work, 120) == [[0, 1], [0, 1]]
        assert client.ask(PING) == [0, 1]
        fds.append(len(os.listdir(f"/proc/{client.pid}/fd")))
    assert fds[-1] <= fds[0] + 2, fds
    assert client.ask("failures_so_far()") == []
    finish(live, client, daemon)
