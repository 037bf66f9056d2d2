"""A worker ends in each way there is, at each stage: who learns what, who goes on, and what is left."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

import pytest
from census import GONE_S, wait_exit
from live import EVENT_S, Client, Live, RemoteError, read_fifo

# how it ends -> kind, code
ENDS = {
    "SIGKILL": ("signalled", int(signal.SIGKILL)),
    "SIGSEGV": ("signalled", int(signal.SIGSEGV)),
    "SIGABRT": ("signalled", int(signal.SIGABRT)),
    "_exit 7": ("exited", 7),
    "_exit 0": ("stopped", 0),
}


@pytest.fixture
def client(live: Live) -> Client:
    client = live.client()
    client.start_victims(3)
    return client


def assert_others_live(client: Client) -> None:
    assert client.ask("victims.slice(gpus=slice(0, 2)).ping.call().get(timeout=10).values()") == [0, 1]


def assert_told(fields: dict[str, Any], kind: str, code: int, rank: int = 2) -> None:
    assert (fields["kind"], fields["rank"], fields["mesh"]) == (kind, rank, "victims")
    assert fields["actor_class"] == "live_actors.Victim"
    if kind != "stopped":
        assert fields["code"] == code


@pytest.mark.parametrize("path", ["ring", "relay"])
@pytest.mark.parametrize("how", ENDS)
def test_during_a_call(live: Live, how: str, path: str) -> None:
    kind, code = ENDS[how]
    daemon = live.daemon("--ring-links-max", "0") if path == "relay" else None
    client = live.client(address=daemon.address) if daemon else live.client()
    client.start_victims(3)
    error = client.fails(f"victims.slice(gpus=2).die.call_one({how!r}).get()")
    assert error.is_a("SupervisionError")
    assert_told(error.fields, kind, code)
    if kind == "signalled":
        assert f"killed by signal {code}" in error.fields["text"]
    assert "rank 2" in error.fields["text"] or kind == "stopped"
    assert_others_live(client)
    if kind == "stopped":
        assert client.ask("failures_so_far()") == []
    else:
        (failure,) = client.ask("failures(1)")
        assert_told(failure, kind, code)
    assert client.finish() == 0
    if daemon:
        daemon.close()
    live.assert_gone()


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSEGV", "_exit 7"])
def test_callers_learn_it_without_the_daemon(live: Live, client: Client, how: str) -> None:
    """Its launcher tells who has a ring with it, however long the daemon takes."""
    kind, code = ENDS[how]
    client.ask("victims.ping.call().get()")
    daemon = client.daemon()
    os.kill(daemon, signal.SIGSTOP)
    try:
        error = client.fails(f"victims.slice(gpus=2).die.call_one({how!r}).get()")
        assert_told(error.fields, kind, code)
        (failure,) = client.ask("failures(1)")
        assert_told(failure, kind, code)
        assert_others_live(client)
    finally:
        os.kill(daemon, signal.SIGCONT)
    # What the daemon says afterwards is told to nobody a second time.
    assert_others_live(client)
    assert client.ask("failures_so_far()") == [failure]
    assert client.finish() == 0
    live.assert_gone()


def test_a_worker_that_waits_for_another_learns_it_without_the_daemon(client: Client) -> None:
    client.ask("one, other = victims.slice(gpus=1), victims.slice(gpus=2)")
    assert client.ask("one.ask.call_one(other, 'pid').get() == procs.pids()[2]")
    daemon = client.daemon()
    os.kill(daemon, signal.SIGSTOP)
    try:
        error = client.fails("one.ask.call_one(other, 'die', 'SIGKILL').get()")
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert error.is_a("ActorError"), error
    assert "signal 9" in error.fields["text"] or "sig=9" in error.fields["text"], error


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM])
def test_idle(live: Live, client: Client, number: signal.Signals) -> None:
    pid = client.ask("procs.pids()")[2]
    os.kill(pid, number)
    (failure,) = client.ask("failures(1)")
    assert_told(failure, "signalled", int(number))
    assert failure["pid"] == pid
    error = client.fails("victims.slice(gpus=2).ping.call_one().get()")
    assert error.is_a("SupervisionError")
    assert_told(error.fields, "signalled", int(number))
    assert_others_live(client)
    assert client.finish() == 0
    live.assert_gone()


def test_while_another_is_asked(live: Live, client: Client) -> None:
    """The victim is stopped in the middle of a call of its own; calls to the others are not touched."""
    fifo, gate = live.fifo("hangs"), live.fifo("gate")
    dying = client.begin(f"victims.slice(gpus=2).hang.call_one({str(fifo)!r}).get()")
    waiting = client.begin(f"victims.slice(gpus=0).wait_for.call_one({str(gate)!r}).get()")
    pid = int(read_fifo(fifo))
    os.kill(pid, signal.SIGKILL)
    assert_told(client.error(dying).fields, "signalled", 9)
    with open(gate, "w", encoding="utf-8"):
        assert client.result(waiting) == 0
    assert_others_live(client)


def test_all_calls_to_the_dead_one_end(client: Client) -> None:
    client.ask("victim = victims.slice(gpus=2)")
    pending = [client.begin("victim.die.call_one('SIGSTOP').get()") for _ in range(8)]
    client.ask("calls = [victim.ping.call_one() for _ in range(20)]")
    os.kill(client.ask("procs.pids()")[2], signal.SIGKILL)
    for number in pending:
        assert_told(client.error(number).fields, "signalled", 9)
    assert client.ask("{type(call.exception(timeout=10)).__name__ for call in calls} == {'SupervisionError'}")


def test_a_sender_that_waits_for_room_is_told(client: Client) -> None:
    client.ask("victim = victims.slice(gpus=2)")
    pid = client.ask("procs.pids()")[2]
    os.kill(pid, signal.SIGSTOP)
    # More than a ring holds: it waits with a part of them, which only the death can end.
    sent = client.begin("[victim.ping.call_one() for _ in range(1000)]")
    with pytest.raises(AssertionError, match="no answer in time"):
        client.result(sent, 0.5)
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(RemoteError):
        client.result(sent, 5)
    assert_told(client.fails("victim.ping.call_one().get(timeout=10)").fields, "signalled", 9)
    assert_others_live(client)


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSEGV", "_exit 3", "_exit 0"])
def test_its_grandchild_in_a_session_of_its_own_goes_too(live: Live, client: Client, how: str) -> None:
    grandchild = client.ask("victims.slice(gpus=2).family.call_one().get()")
    kept = client.ask("victims.slice(gpus=0).family.call_one().get()")
    assert os.getsid(grandchild) == grandchild
    client.fails(f"victims.slice(gpus=2).die.call_one({how!r}).get()")
    assert wait_exit(grandchild, GONE_S)
    assert_others_live(client)
    assert not wait_exit(kept, 0)
    assert client.finish() == 0
    live.assert_gone()


@pytest.mark.parametrize("how", ["_exit 5", "SIGKILL", "_exit 0"])
def test_in_init(live: Live, client: Client, how: str) -> None:
    client.ask(f"broken = procs.spawn('broken', Broken, 1, {how!r})")
    error = client.fails("broken.pid.call().get(timeout=10)")
    assert error.is_a("SupervisionError"), error
    assert (error.fields["rank"], error.fields["mesh"]) == (1, "broken")
    assert error.fields["actor_class"] == "live_actors.Broken"
    assert client.ask("broken.slice(gpus=2).pid.call_one().get(timeout=10) == procs.pids()[2]")
    assert client.ask("victims.slice(gpus=0).ping.call_one().get(timeout=10)") == 0
    again = client.ask("procs.slice(gpus=0).spawn('again', Victim).ping.call_one().get(timeout=10)")
    assert again == 0
    assert client.finish() == 0
    live.assert_gone()


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_during_a_spawn(live: Live, client: Client, victim: int) -> None:
    """A process that is killed before it is ready costs the mesh that it is of, and nothing else."""
    fifo = live.fifo("started")
    client.ask(f"more = spawn_with_one_that_waits(3, {victim}, {str(fifo)!r})")
    spawned = client.begin("more.initialized.get()")
    os.kill(int(read_fifo(fifo)), signal.SIGKILL)
    error = client.error(spawned)
    assert error.is_a("SpawnError")
    assert f"rank {victim}" in error.fields["text"] and "signal 9" in error.fields["text"], error
    assert client.ask("len(victims.ping.call().get(timeout=10))") == 3
    left = live.census.named("python")
    assert sorted(left) == sorted([client.pid, *client.ask("procs.pids()")])
    assert client.finish() == 0
    live.assert_gone()


def test_every_worker_at_once(live: Live, client: Client) -> None:
    for pid in client.ask("procs.pids()"):
        os.kill(pid, signal.SIGKILL)
    told = client.ask("failures(3)")
    assert sorted(failure["rank"] for failure in told) == [0, 1, 2]
    assert len(client.start_victims(2)) == 2
    assert client.finish(EVENT_S) == 0
    live.assert_gone()


@pytest.mark.parametrize("how", ["_exit 4", "_exit 0", "SIGKILL"])
def test_in_the_bootstrap_function(live: Live, client: Client, how: str) -> None:
    client.ask(f"def leave():\n    import live_actors\n    live_actors.end_process({how!r})")
    error = client.fails(
        "this_host().spawn_procs({'gpus': 2}, bootstrap=leave, name='more').initialized.get(timeout=20)"
    )
    assert error.is_a("SupervisionError"), error
    assert_others_live(client)
    assert client.finish() == 0
    live.assert_gone()


def test_sys_exit_in_the_bootstrap_function(live: Live, client: Client) -> None:
    client.ask("def leave():\n    import sys\n    sys.exit(4)")
    error = client.fails(
        "this_host().spawn_procs({'gpus': 2}, bootstrap=leave, name='more').initialized.get(timeout=20)"
    )
    # As any other exception there: the processes live, and whoever waits for them has it.
    assert error.is_a("ActorError"), error
    assert "SystemExit: 4" in error.fields["text"]
    assert_others_live(client)
    assert client.finish() == 0
    live.assert_gone()
