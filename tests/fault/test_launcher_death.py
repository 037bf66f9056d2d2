"""The launcher ends: its workers go with it, the client is told and can spawn anew."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from census import GONE_S, wait_exit
from live import EVENT_S, Live, read_fifo


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_workers_go_with_it(live: Live, number: signal.Signals) -> None:
    client = live.client()
    workers = client.start_victims(3)
    families = client.ask("victims.family.call().get().values()")
    fifo = live.fifo("in-call")
    pending = client.begin(f"victims.slice(gpus=1).hang.call_one({str(fifo)!r}).get()")
    read_fifo(fifo)
    launcher = client.launcher()
    os.kill(launcher, number)
    live.census.wait_gone(GONE_S, but={client.pid, client.daemon()})
    assert all(wait_exit(pid, 0) for pid in [launcher, *workers, *families])
    error = client.error(pending)
    assert error.is_a("SupervisionError")
    assert (error.fields["rank"], error.fields["mesh"]) == (1, "victims")
    assert error.fields["kind"] in ("signalled", "stopped", "unreachable"), error
    assert client.fails("victims.ping.call().get(timeout=10)").is_a("SupervisionError")
    # A new one is started for what comes next.
    assert len(client.start_victims(2)) == 2
    assert client.launcher() != launcher
    assert client.ask("victims.ping.call().get(timeout=10).values()") == [0, 1]
    assert client.finish() == 0
    live.assert_gone()


def test_a_worker_dies_at_the_same_time(live: Live) -> None:
    client = live.client()
    for _ in range(3):
        workers = client.start_victims(3)
        pending = [client.begin(f"victims.slice(gpus={n}).die.call_one('SIGSTOP').get()") for n in range(3)]
        ends = [
            threading.Thread(target=os.kill, args=(p, signal.SIGKILL))
            for p in (workers[1], client.launcher())
        ]
        for end in ends:
            end.start()
        for end in ends:
            end.join()
        for rank, number in enumerate(pending):
            error = client.error(number)
            assert error.is_a("SupervisionError")
            assert (error.fields["rank"], error.fields["kind"], error.fields["code"]) == (
                rank,
                "signalled",
                9,
            )
    assert client.finish() == 0
    live.assert_gone()


def test_during_a_spawn(live: Live) -> None:
    client = live.client()
    client.start_victims(1)
    fifo = live.fifo("started")
    client.ask(f"more = spawn_with_one_that_waits(3, 1, {str(fifo)!r})")
    spawned = client.begin("more.initialized.get()")
    started = int(read_fifo(fifo))
    os.kill(client.launcher(), signal.SIGKILL)
    assert client.error(spawned).is_a("SpawnError")
    assert wait_exit(started, GONE_S)
    assert len(client.start_victims(2)) == 2
    assert client.finish() == 0
    live.assert_gone()


def test_again_and_again(live: Live) -> None:
    client = live.client()
    for _ in range(5):
        workers = client.start_victims(2)
        os.kill(client.launcher(), signal.SIGKILL)
        assert all(wait_exit(pid, GONE_S) for pid in workers)
        assert client.fails("victims.ping.call().get(timeout=10)").is_a("SupervisionError")
    assert client.finish() == 0
    live.assert_gone()


def test_the_client_dies_at_the_same_time(live: Live) -> None:
    client = live.client()
    client.start_victims(3)
    client.ask("victims.family.call().get()")
    launcher = client.launcher()
    ends = [threading.Thread(target=os.kill, args=(pid, signal.SIGKILL)) for pid in (launcher, client.pid)]
    for end in ends:
        end.start()
    for end in ends:
        end.join()
    client.process.wait(EVENT_S)
    live.assert_gone()


def test_a_stopped_launcher_does_not_keep_a_session(live: Live) -> None:
    client = live.client()
    client.start_victims(2)
    os.kill(client.launcher(), signal.SIGSTOP)
    client.kill(signal.SIGKILL)
    client.process.wait(EVENT_S)
    live.assert_gone()
