"""Hosts of a session die: what ran there is unreachable, or told with its cause, and nothing stays."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess

import pytest
from census import GONE_S, wait_exit
from live import EVENT_S, Client, Live, WorkerDaemon, read_fifo


def spread(live: Live, *workers: WorkerDaemon) -> Client:
    client = live.client()
    client.ask("from spread import *")
    client.ask(f"hosts = attach(*{[worker.address for worker in workers]!r})", 60)
    client.ask("(procs, victims) = spread_victims(hosts)", 60)
    return client


def hang(live: Live, client: Client, rank: int) -> int:
    fifo = live.fifo(f"in-call-{rank}")
    pending = client.begin(f"victims.slice(gpus={rank}).hang.call_one({str(fifo)!r}).get()")
    read_fifo(fifo)
    return pending


def test_a_killed_worker_daemon_makes_its_processes_unreachable(live: Live) -> None:
    live.run_dir_stays = True
    workers = [live.worker(), live.worker()]
    client = spread(live, *workers)
    pids = client.ask("procs.pids()")
    pending = hang(live, client, 0)
    workers[0].process.kill()
    error = client.error(pending)
    assert error.is_a("SupervisionError")
    assert error.fields["kind"] == "unreachable"
    assert workers[0].address in str(error)
    assert wait_exit(pids[0], GONE_S)
    error = client.fails("victims.slice(gpus=1).ask.call_one(victims.slice(gpus=0), 'ping').get(timeout=20)")
    assert "unreachable" in str(error)
    assert client.ask("victims.slice(gpus=1).pid.call_one().get() == procs.pids()[1]")
    assert client.finish() == 0


def test_a_daemon_that_came_back_under_its_address_is_another_host(live: Live) -> None:
    live.run_dir_stays = True
    worker = live.worker()
    client = spread(live, worker)
    pending = hang(live, client, 0)
    worker.process.kill()
    client.error(pending)
    live.worker(address=worker.address)
    client.ask(f"again = attach({worker.address!r})", 60)
    assert client.ask("again != hosts")
    client.ask("(new_procs, new_victims) = spread_victims(again)", 60)
    assert client.ask("new_victims.ping.call_one().get(timeout=20)") == 0
    # What was there before is not what has this address now.
    error = client.fails("victims.ping.call_one().get(timeout=20)")
    assert error.fields["kind"] == "unreachable"
    assert client.finish() == 0


def test_a_silent_host_is_given_up(live: Live) -> None:
    worker = live.worker()
    client = spread(live, worker)
    pending = hang(live, client, 0)
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        error = client.error(pending)
        assert error.fields["kind"] == "unreachable"
        assert "silent" in str(error)
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    assert client.finish() == 0


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSEGV", "_exit 3"])
def test_the_cause_of_a_death_crosses_hosts(live: Live, how: str) -> None:
    client = spread(live, live.worker(), live.worker())
    error = client.fails(f"victims.slice(gpus=1).die.call_one({how!r}).get(timeout=20)")
    assert error.fields["kind"] == ("exited" if how.startswith("_") else "signalled")
    told = client.ask("failures(1)")
    assert told[0]["rank"] == 1
    assert client.finish() == 0


def test_a_killed_launcher_there_is_a_death_of_its_processes(live: Live) -> None:
    worker = live.worker()
    client = spread(live, worker)
    pending = hang(live, client, 0)
    (launcher,) = worker.launchers()
    os.kill(launcher, signal.SIGKILL)
    error = client.error(pending)
    assert error.fields["kind"] == "signalled"
    client.ask("(procs, victims) = spread_victims(hosts)", 60)
    assert client.finish() == 0


def test_the_home_daemons_death_ends_the_session_on_all_hosts(live: Live) -> None:
    live.run_dir_stays = True
    workers = [live.worker(), live.worker()]
    client = spread(live, *workers)
    pending = hang(live, client, 0)
    os.kill(client.daemon(), signal.SIGKILL)
    assert client.error(pending).fields["kind"] == "unreachable"
    live.census.wait_gone(GONE_S, but={client.pid, *(worker.pid for worker in workers)})
    other = spread(live, *workers)
    assert other.finish() == 0
    assert client.finish() == 0


def test_a_killed_client_leaves_nothing_on_any_host(live: Live) -> None:
    workers = [live.worker(), live.worker()]
    client = spread(live, *workers)
    client.ask("victims.family.call().get()")
    client.kill()
    client.process.wait()
    live.census.wait_gone(GONE_S, but={worker.pid for worker in workers})


@pytest.mark.parametrize("how", ["returns", "SIGTERM", "SIGKILL", "SIGKILL of its daemon"])
def test_actors_clean_up_on_all_hosts_however_the_client_ends(live: Live, how: str) -> None:
    live.run_dir_stays = True
    workers = [live.worker(), live.worker()]
    client = live.client(stderr=subprocess.DEVNULL)
    client.ask("from spread import *")
    client.ask(f"procs = spread_procs(attach(*{[worker.address for worker in workers]!r}))", 60)
    log = live.folder / "log"
    client.ask(f"cleaning = procs.spawn('member', Cleaning, {str(log)!r}, 'member')")
    client.ask("cleaning.note.call('is there').get(timeout=20)")
    name, _, of_daemon = how.partition(" ")
    if name == "returns":
        assert client.finish() == 0
    else:
        os.kill(client.daemon() if of_daemon else client.pid, signal.Signals[name])
    live.census.wait_gone(GONE_S, but={client.pid, *(worker.pid for worker in workers)})
    assert log.read_text().count("member cleaned") == 2


def test_term_ends_a_worker_daemon_with_what_it_runs(live: Live) -> None:
    worker = live.worker()
    client = spread(live, worker)
    pids = client.ask("procs.pids()")
    pending = hang(live, client, 0)
    worker.process.terminate()
    assert worker.process.wait(EVENT_S) == 0
    assert all(wait_exit(pid, GONE_S) for pid in pids)
    error = client.error(pending)
    assert error.is_a("SupervisionError")
    assert client.ask("failures(1)")[0]["kind"] == "unreachable"
    assert client.finish() == 0


def test_garbage_is_refused_and_harms_nobody(live: Live) -> None:
    worker = live.worker()
    client = spread(live, worker)
    for data in (b"\xff" * 64, b"\x10\x00\x00\x00" + b"x" * 16, b"PRI * HTTP/2.0\r\n\r\n", b"\x00" * 8):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.connect(worker.address.removeprefix("ipc://"))
            peer.settimeout(EVENT_S)
            peer.sendall(data)
            with contextlib.suppress(ConnectionResetError):  # what it had not read was dropped
                assert peer.recv(64) == b""
    assert client.ask("victims.slice(gpus=0).ping.call_one().get()") == 0
    assert client.finish() == 0
