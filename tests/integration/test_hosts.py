"""A session over several hosts: each worker daemon is one."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess

import pytest
from census import GONE_S, wait_exit
from live import BIN, EVENT_S, Client, Live, WorkerDaemon, read_fifo

_LARGE = 5 << 20


def client_with(live: Live, *workers: WorkerDaemon) -> Client:
    client = live.client()
    client.ask("from spread import *")
    client.ask(f"hosts = attach(*{[worker.address for worker in workers]!r})", 60)
    return client


def spawn_on(client: Client, *ranks: int) -> None:
    client.ask(f"(procs, victims) = spread_victims([hosts[i] for i in {list(ranks)!r}])", 60)


def test_a_spread_mesh_answers_from_each_host(live: Live) -> None:
    workers = [live.worker(), live.worker()]
    client = client_with(live, *workers)
    spawn_on(client, 0, 1, 0)
    assert client.ask("[r for _, r in victims.ping.call().get()]") == [0, 1, 2]
    assert len(client.ask("sorted(p['pid'] for p in process().control().list_procs())")) == 3
    assert client.ask("echo_sizes(victims, 1, [1, 4096, 70000, 5 << 20])") == [1, 4096, 70000, _LARGE]
    assert client.finish() == 0


def test_hosts_talk_through_the_home(live: Live) -> None:
    client = client_with(live, live.worker(), live.worker())
    spawn_on(client, 0, 1)
    pid = client.ask("victims.slice(gpus=0).ask.call_one(victims.slice(gpus=1), 'pid').get()")
    assert pid == client.ask("procs.pids()")[1]
    code = "len(victims.slice(gpus=0).ask.call_one(victims.slice(gpus=1), 'echo', b'x' * (5 << 20)).get())"
    assert client.ask(code) == _LARGE
    assert client.finish() == 0


def test_attaching_twice_is_attaching_once(live: Live) -> None:
    worker = live.worker()
    client = client_with(live, worker)
    assert client.ask(f"attach({worker.address!r}) == hosts")
    assert client.finish() == 0


def test_nobody_at_an_address_is_unavailable_and_names_it(live: Live) -> None:
    client = live.client()
    error = client.fails("process().control().attach_host('ipc://@nobody-is-here', 100)")
    assert error.is_a("ControlError")
    assert "ipc://@nobody-is-here" in str(error)
    error = client.fails("process().control().attach_host('tcp://10.1.1.1:7000', 100)")
    assert "mutual TLS" in str(error)
    assert client.finish() == 0


def test_a_mesh_is_spawned_whole_or_not_at_all_over_all_hosts(live: Live) -> None:
    workers = [live.worker(), live.worker()]
    client = client_with(live, *workers)
    client.ask("bad = lambda: spread_procs([hosts[0], bytes(16)])")
    error = client.fails("bad()", 60)
    assert "not in this session" in str(error)
    assert client.ask("process().control().list_procs()") == []
    assert client.finish() == 0


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_an_inherited_listening_socket_is_served(live: Live, family: socket.AddressFamily) -> None:
    listening = socket.socket(family, socket.SOCK_STREAM)
    path = f"{live.folder}/inherited.sock"
    listening.bind(path if family == socket.AF_UNIX else ("127.0.0.1", 0))
    listening.listen()
    address = f"ipc://{path}" if family == socket.AF_UNIX else f"tcp://127.0.0.1:{listening.getsockname()[1]}"
    fd = listening.fileno()
    worker = live.worker(address=f"tcp://localhost:fd{fd}", pass_fds=(fd,))
    listening.close()
    worker.address = address
    client = client_with(live, worker)
    spawn_on(client, 0)
    assert client.ask("echo_sizes(victims, 0, [5 << 20])") == [_LARGE]
    assert client.finish() == 0


def test_a_stale_socket_file_is_replaced_and_a_live_one_refused(live: Live) -> None:
    first = live.worker()
    client_with(live, first).finish()
    path = first.address.removeprefix("ipc://")
    assert os.stat(path).st_mode & 0o777 == 0o600
    second = subprocess.run(
        [str(BIN / "monarchd"), "--worker-address", first.address],
        env=live.environment(),
        capture_output=True,
        text=True,
        timeout=EVENT_S,
    )
    assert second.returncode == 1
    assert "another process listens there" in second.stderr
    first.process.kill()
    first.process.wait()
    live.run_dir_stays = True
    again = live.worker(address=first.address)
    client = client_with(live, again)
    assert client.finish() == 0


def test_shutting_a_host_down_ends_its_daemon_with_0(live: Live) -> None:
    workers = [live.worker(), live.worker()]
    client = client_with(live, *workers)
    spawn_on(client, 0, 1)
    client.ask("process().control().shutdown_host(hosts[0], 1000, 1000)")
    assert workers[0].process.wait(EVENT_S) == 0
    assert client.ask("victims.slice(gpus=1).pid.call_one().get() == procs.pids()[1]")
    error = client.fails("victims.slice(gpus=0).ping.call_one().get(timeout=20)")
    assert error.is_a("SupervisionError")
    assert client.finish() == 0


def test_a_host_serves_several_clients_and_stays_when_they_go(live: Live) -> None:
    worker = live.worker()
    first = client_with(live, worker)
    second = client_with(live, worker)
    spawn_on(first, 0)
    spawn_on(second, 0)
    assert first.finish() == 0
    assert second.ask("victims.slice(gpus=0).ping.call_one().get()") == 0
    assert second.finish() == 0
    third = client_with(live, worker)
    spawn_on(third, 0)
    assert third.finish() == 0
    assert worker.process.poll() is None


def test_a_signal_reaches_a_process_of_another_host(live: Live) -> None:
    client = client_with(live, live.worker())
    spawn_on(client, 0)
    pids = client.ask("procs.pids()")
    client.ask(f"process().control().signal_procs(procs._core.procs, {int(signal.SIGKILL)})")
    assert all(wait_exit(pid, GONE_S) for pid in pids)
    error = client.fails("victims.slice(gpus=0).ping.call_one().get(timeout=20)")
    assert error.fields["kind"] == "signalled"
    assert client.finish() == 0


def told_hangs(client: Client, path: pathlib.Path, actor: str = "") -> None:
    """From now on the client's process, or that of an actor, writes down of which hangs it is told."""
    code = f"""
import monarch.actor
def told(hang):
    with open({str(path)!r}, "w") as fifo:
        fifo.write(f"{{hang.event.mesh}}:{{hang.event.rank}} {{hang.method}} {{hang.recovered}}\\n")
monarch.actor.hang_hook = told
"""
    client.ask(f"{actor}.run.call_one({code!r}).get()" if actor else code)


def known_hangs(live: Live) -> list[list[str]]:
    """For each daemon that answers: what it knows."""
    known = []
    for name in live.run_dirs():
        done = live.ctl("why", f"--address=unix:{live.folder}/monarch/{name}", "--json", check=False)
        (daemon,) = json.loads(done.stdout)["daemons"]
        records = daemon["failures"]["failures"]
        assert all(record["event"]["kind"] == "FAILURE_KIND_HUNG" for record in records)
        known.append([f"{record['event']['mesh']} {record['hang']['recovered']}" for record in records])
    return known


def test_a_hang_on_a_host_is_told_to_the_client_and_known_at_home(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONARCH_HUNG_AFTER", "300ms")
    client = client_with(live, live.worker())
    spawn_on(client, 0, 0)
    told, gate = live.fifo("told"), live.fifo("gate")
    told_hangs(client, told)
    pending = client.begin(f"victims.slice(gpus=1).wait_for.call_one({str(gate)!r}).get()")
    assert read_fifo(told) == "victims:1 wait_for False"
    assert known_hangs(live) == [["victims False"]] * 2
    os.close(os.open(gate, os.O_WRONLY))
    assert client.result(pending) == 0
    assert read_fifo(told) == "victims:1 wait_for True"
    assert known_hangs(live) == [["victims True"]] * 2
    assert client.ask("failures_so_far()") == []
    assert client.finish() == 0


def test_a_hang_is_told_to_an_owner_on_a_third_host(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONARCH_HUNG_AFTER", "300ms")
    client = client_with(live, live.worker(), live.worker())
    spawn_on(client, 0, 1)
    told, gate = live.fifo("told"), live.fifo("gate")
    told_hangs(client, told, "victims.slice(gpus=0)")
    client.ask("owner = procs.slice(gpus=0).spawn('owner', Owning)")
    client.ask("owner.own.call_one(procs.slice(gpus=1)).get()", 60)
    client.ask(f"owner.begin_wait.call_one({str(gate)!r}).get()")
    assert read_fifo(told) == "owned:0 wait_for False"
    os.close(os.open(gate, os.O_WRONLY))
    assert client.ask("owner.end_wait.call_one().get()") == [0]
    assert read_fifo(told) == "owned:0 wait_for True"
    # The home, and the host where it hung; not the owner's.
    assert sorted(known_hangs(live)) == [[], ["owned True"], ["owned True"]]
    assert client.finish() == 0
