"""The private daemon ends: calls fail as unreachable, its processes end themselves, the client lives on."""

from __future__ import annotations

import os
import signal

import pytest
from census import GONE_S, wait_exit
from live import EVENT_S, Client, Live, read_fifo


def end_daemon(live: Live, client: Client, number: int) -> None:
    daemon = client.daemon()
    os.kill(daemon, number)
    assert wait_exit(daemon, GONE_S)
    live.census.wait_gone(GONE_S, but={client.pid})
    assert live.census.cgroups() == []


@pytest.fixture(autouse=True)
def run_dir_stays(live: Live) -> None:
    live.run_dir_stays = True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_calls_fail_as_unreachable(live: Live, number: signal.Signals) -> None:
    client = live.client()
    client.start_victims(3)
    client.ask("victims.family.call().get()")
    fifo = live.fifo("in-call")
    pending = client.begin(f"victims.slice(gpus=1).hang.call_one({str(fifo)!r}).get()")
    read_fifo(fifo)
    end_daemon(live, client, number)
    for error in (client.error(pending), client.fails("victims.slice(gpus=0).ping.call_one().get()")):
        assert error.is_a("SupervisionError")
        assert error.fields["kind"] == "unreachable", error
        assert error.fields["mesh"] == "victims"
    told = client.ask("failures(1)")
    assert {failure["kind"] for failure in told} == {"unreachable"}
    error = client.fails("this_host().spawn_procs({'gpus': 1}).initialized.get(timeout=20)")
    assert error.is_a("SpawnError") or error.is_a("SupervisionError"), error
    assert client.finish() == 0
    live.assert_gone()


def test_told_to_stop_it_says_so(live: Live) -> None:
    client = live.client()
    client.start_victims(2)
    fifo = live.fifo("in-call")
    pending = client.begin(f"victims.slice(gpus=1).hang.call_one({str(fifo)!r}).get()")
    read_fifo(fifo)
    end_daemon(live, client, signal.SIGTERM)
    live.run_dir_stays = False
    assert client.error(pending).fields["kind"] in ("stopped", "unreachable")
    assert client.fails("victims.ping.call().get(timeout=10)").is_a("SupervisionError")
    assert client.finish() == 0


def test_stop_after_it(live: Live) -> None:
    """Nothing to stop is no error, or one of ours; never a hang."""
    client = live.client()
    client.start_victims(2)
    end_daemon(live, client, signal.SIGKILL)
    client.ask("failures(1)")
    for code in ("victims.stop().get(timeout=20)", "procs.stop().get(timeout=20)"):
        number = client.begin(code)
        try:
            client.result(number)
        except Exception as error:
            assert getattr(error, "is_a", lambda name: False)("SupervisionError"), error
    client.ask("shutdown_context().get(timeout=20)")
    assert client.finish() == 0


def test_during_a_spawn(live: Live) -> None:
    client = live.client()
    client.start_victims(1)
    fifo = live.fifo("started")
    client.ask(f"more = spawn_with_one_that_waits(3, 1, {str(fifo)!r})")
    spawned = client.begin("more.initialized.get()")
    read_fifo(fifo)
    end_daemon(live, client, signal.SIGKILL)
    assert client.error(spawned).is_a("SpawnError")
    assert client.finish() == 0


def test_unhandled_it_ends_the_program(live: Live) -> None:
    process = live.script(
        "from monarch.actor import this_host\n"
        "procs = this_host().spawn_procs({'gpus': 2})\n"
        "print(*procs.pids(), flush=True)\n"
        "import threading; threading.Event().wait()\n"
    )
    assert process.stdout is not None
    process.stdout.readline()
    (daemon,) = live.census.named("monarchd")
    os.kill(daemon, signal.SIGKILL)
    _, err = process.communicate(timeout=EVENT_S)
    assert process.returncode in (130, -signal.SIGINT)
    assert "unreachable" in err
    live.assert_gone()


def test_daemon_and_client_die_at_the_same_time(live: Live) -> None:
    client = live.client()
    client.start_victims(3)
    client.ask("victims.family.call().get()")
    daemon = client.daemon()
    os.kill(daemon, signal.SIGKILL)
    client.kill(signal.SIGKILL)
    client.process.wait(EVENT_S)
    live.assert_gone()


def test_the_next_one_removes_its_directory(live: Live) -> None:
    client = live.client()
    client.start_victims(1)
    end_daemon(live, client, signal.SIGKILL)
    (old,) = live.run_dirs()
    other = live.client()
    other.start_victims(1)
    assert old not in live.run_dirs()
    assert other.finish() == 0
    assert client.finish() == 0
    live.run_dir_stays = False
    live.assert_gone()


def test_a_stopped_daemon_is_no_dead_one(live: Live) -> None:
    """Actors talk by memory that they share: a daemon that does not run costs them nothing."""
    client = live.client()
    client.start_victims(2)
    daemon = client.daemon()
    os.kill(daemon, signal.SIGSTOP)
    for _ in range(3):
        assert client.ask("victims.ping.call().get(timeout=10).values()") == [0, 1]
    os.kill(daemon, signal.SIGCONT)
    assert len(client.start_victims(2)) == 2
    assert client.ask("failures_so_far()") == []
    assert client.finish() == 0
