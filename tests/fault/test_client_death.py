"""The client ends, in each way and at each moment: after two seconds there is nothing of its session."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess

import pytest
from census import GONE_S, wait_exit
from live import EVENT_S, FULL, Live, read_fifo

FATAL = [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
WORKERS = 8


@pytest.mark.parametrize("number", FATAL)
def test_idle_with_families(live: Live, number: signal.Signals) -> None:
    """Grandchildren in sessions of their own, that ignore TERM, go as well."""
    client = live.client(stderr=subprocess.DEVNULL)
    workers = client.start_victims(WORKERS)
    families = client.ask("victims.family.call().get().values()")
    others = [client.daemon(), client.launcher()]
    client.kill(number)
    assert client.process.wait(EVENT_S) == -number
    took = live.assert_gone()
    print(f"gone after {took:.3f} s")
    assert all(wait_exit(pid, 0) for pid in workers + families + others)


@pytest.mark.parametrize("number", FATAL)
def test_during_a_call(live: Live, number: signal.Signals) -> None:
    client = live.client(stderr=subprocess.DEVNULL)
    client.start_victims(WORKERS)
    fifo = live.fifo("in-call")
    client.begin(f"victims.slice(gpus=3).hang.call_one({str(fifo)!r}).get()")
    read_fifo(fifo)
    client.kill(number)
    assert client.process.wait(EVENT_S) == -number
    live.assert_gone()


AT_START = """\
from monarch.actor import this_host
print("imported", flush=True)
procs = this_host().spawn_procs({"gpus": 8})
procs.initialized.get()
print("ready", flush=True)
import signal
signal.pause()
"""


def test_at_start_and_during_the_spawn(live: Live) -> None:
    """Killed after a random time from the import on, up to a little more than a spawn takes."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    longest = 0.0
    for _ in range(60 if FULL else 12):
        process = live.script(AT_START)
        assert process.stdout is not None
        assert process.stdout.readline() == "imported\n"
        # The moment of a fault, and no wait for an event: it ends earlier only if the program does.
        assert not wait_exit(process.pid, moments.uniform(0, 0.6))
        process.kill()
        process.wait()
        longest = max(longest, live.assert_gone())
        process.communicate()
    print(f"gone after at most {longest:.3f} s")


def test_as_soon_as_there_is_a_daemon(live: Live) -> None:
    for name in ("monarchd", "monarch-launche", "python"):
        process = live.script(AT_START)
        # Each look takes as long as reading /proc does.
        while not any(pid != process.pid for pid in live.census.named(name)):
            assert process.poll() is None
        process.kill()
        process.wait()
        live.assert_gone()


def test_a_worker_that_takes_no_term_is_killed(live: Live) -> None:
    client = live.client()
    workers = client.start_victims(2)
    os.kill(workers[1], signal.SIGSTOP)
    client.kill(signal.SIGKILL)
    client.process.wait(EVENT_S)
    live.assert_gone()


def test_again_while_it_ends(live: Live) -> None:
    """A second signal during the orderly end makes it no worse."""
    client = live.client(stderr=subprocess.DEVNULL)
    client.start_victims(2)
    client.ask("victims.family.call().get()")
    client.close_commands()
    client.kill(signal.SIGTERM)
    client.kill(signal.SIGKILL)
    client.process.wait(EVENT_S)
    live.assert_gone()


CTRL_C = """\
import sys, threading
sys.path.insert(0, {support!r})
from live_actors import *
procs, victims = start_victims(2)
waiting = victims.hang.call({fifo!r})
waiting.get()
"""


def test_ctrl_c(live: Live) -> None:
    """Once is enough, and what is shown is short."""
    from live import SUPPORT

    fifo = live.fifo("in-call")
    process = live.script(CTRL_C.format(support=str(SUPPORT), fifo=str(fifo)))
    read_fifo(fifo)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=EVENT_S)
    live.assert_gone()
    # A shell says 130.
    assert process.returncode in (130, -signal.SIGINT)
    assert out == ""
    lines = err.splitlines()
    assert lines[-1] == "KeyboardInterrupt"
    assert len(lines) <= 5, err


def test_ctrl_c_at_a_terminal_reaches_no_worker(live: Live) -> None:
    """A client that handles the interrupt goes on with its workers: they are in no terminal's group."""
    client = live.client(start_new_session=True)
    workers = client.start_victims(2)
    assert all(os.getpgid(pid) != client.pid for pid in workers)
    client.ask("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)")
    os.killpg(client.pid, signal.SIGINT)
    assert client.ask("victims.ping.call().get(timeout=10).values()") == [0, 1]
    assert client.finish() == 0


@pytest.mark.timeout(90)
def test_a_stopped_client_is_no_dead_one(live: Live) -> None:
    client = live.client()
    workers = client.start_victims(2)
    watched = [client.daemon(), client.launcher(), *workers]
    fifo = live.fifo("gate")
    waiting = client.begin(f"victims.slice(gpus=1).wait_for.call_one({str(fifo)!r}).get()")
    client.kill(signal.SIGSTOP)
    assert os.waitpid(client.pid, os.WUNTRACED)[1] == (signal.SIGSTOP << 8) | 0x7F
    fds = [os.pidfd_open(pid) for pid in watched]
    try:
        assert select.select(fds, [], [], 20 if FULL else 3)[0] == []
        client.kill(signal.SIGCONT)
        with open(fifo, "w", encoding="utf-8"):
            assert client.result(waiting) == 0
        assert client.ask("victims.ping.call().get(timeout=10).values()") == [0, 1]
        assert client.ask("failures_so_far()") == []
        assert select.select(fds, [], [], 0)[0] == []
    finally:
        for fd in fds:
            os.close(fd)
    assert client.finish() == 0
    live.assert_gone()


def test_killed_while_stopped(live: Live) -> None:
    client = live.client()
    client.start_victims(2)
    client.kill(signal.SIGSTOP)
    client.kill(signal.SIGKILL)
    client.process.wait(EVENT_S)
    live.assert_gone(GONE_S)


def test_an_orderly_end_is_complete(live: Live) -> None:
    client = live.client()
    client.start_victims(WORKERS)
    client.ask("victims.family.call().get()")
    assert client.finish() == 0
    live.assert_gone(1.0)
