"""Limits of docs/limits.md that take real processes to reach; the others have unit tests (tests/tools/test_limits_table.py)."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from collections.abc import Callable

import pytest
from census import GONE_S, wait_exit
from live import EVENT_S, Live, read_fifo
from test_output import read_until

Limit = Callable[..., None]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Sets limits for what is started from now on."""

    def limit(**limits: int) -> None:
        for name, value in limits.items():
            monkeypatch.setenv(f"MONARCH_LIMIT_{name.upper()}", str(value))

    return limit


def test_a_session_too_many_is_refused_and_there_is_room_again(live: Live) -> None:
    daemon = live.daemon("--sessions-per-host-max", "1")
    first, second = (live.client(address=daemon.address) for _ in range(2))
    first.start_victims(1)
    assert "sessions_per_host_max=1" in second.fails("start_victims(1)").fields["text"]
    assert first.finish() == 0
    live.census.wait_gone(GONE_S, but={daemon.pid, second.pid})
    second.start_victims(1)
    assert second.finish() == 0


def test_a_process_on_a_host_too_many_is_refused(live: Live, limit: Limit) -> None:
    limit(procs_per_host_max=2)
    client = live.client()
    error = client.fails("start_victims(3)")
    assert error.fields["limit"] == "procs_per_host_max"
    client.start_victims(2)
    assert client.finish() == 0


def test_an_actor_too_many_fails_alone(live: Live, limit: Limit) -> None:
    limit(actors_per_proc_max=12)
    client = live.client()
    client.start_victims(1)
    error = client.fails("[procs.spawn(f'm{i}', Victim).ping.call().get(timeout=20) for i in range(20)]")
    assert "actors_per_proc_max=12 is reached" in error.fields["text"]
    assert client.ask("victims.ping.call().get(timeout=20).values()") == [0]
    assert client.finish() == 0


def test_a_host_too_many_is_not_attached(live: Live, limit: Limit) -> None:
    limit(peer_hosts_max=1)
    workers = [live.worker(), live.worker()]
    client = live.client()
    client.ask("from spread import *")
    client.ask(f"hosts = attach({workers[0].address!r})", 60)
    assert "peer_hosts_max=1" in client.fails(f"attach({workers[1].address!r})").fields["text"]
    client.ask("(procs, victims) = spread_victims(hosts)", 60)
    assert client.finish() == 0


def test_a_dimension_too_many_is_refused(live: Live, limit: Limit) -> None:
    limit(mesh_dims_max=2)
    client = live.client()
    error = client.fails("this_host().spawn_procs({'a': 1, 'b': 1, 'c': 1}).initialized.get(timeout=20)")
    assert "mesh_dims_max=2" in error.fields["text"]
    client.ask("this_host().spawn_procs({'a': 1, 'b': 1}).stop().get(timeout=20)")
    assert client.finish() == 0


def test_what_is_larger_than_a_frame_holds_goes_by_segment(live: Live, limit: Limit) -> None:
    limit(frame_inline_bytes_max=1000)
    client = live.client()
    client.start_victims(1)
    fifo = live.fifo("gate")
    client.ask(f"blocked = victims.wait_for.call_one({str(fifo)!r})")
    client.ask("[victims.take.broadcast(b'x' * 100) for _ in range(10)]")
    assert client.ask("process().runtime.stats()['segment_bytes']") == 0
    client.ask("[victims.take.broadcast(b'x' * 1001) for _ in range(10)]")
    assert client.ask("process().runtime.stats()['segment_bytes']") >= 10 * 1001
    with open(fifo, "w", encoding="utf-8"):
        pass
    assert client.ask("victims.count.call_one().get(timeout=20)") == 20
    assert client.finish() == 0


def test_a_producer_faster_than_its_consumer_fills_no_memory_and_loses_nothing(
    live: Live, limit: Limit
) -> None:
    limit(mailbox_bytes_max=1 << 20)
    client = live.client()
    client.start_victims(2)
    client.ask(
        "def produce(mesh, count, size, data=bytes(1 << 20)):\n"
        "    most = 0\n"
        "    for _ in range(count):\n"
        "        mesh.take.broadcast(data[:size])\n"
        "        most = max(most, process().runtime.stats()['segment_bytes'])\n"
        "    return most\n"
    )
    count, size = 2000, 100_000
    most = client.ask(f"produce(victims, {count}, {size})", 120)
    # Of 200 MB: a mailbox, and what a ring of frames refers to, for each of two.
    assert most < 40_000_000
    assert client.ask("victims.count.call().get(timeout=60).values()", 60) == [count, count]
    assert client.finish() == 0


def test_the_sessions_log_stays_within_its_limit_and_has_the_newest(live: Live, limit: Limit) -> None:
    limit(session_log_bytes_max=200_000)
    daemon = live.daemon()
    client = live.client(address=daemon.address, stdout=subprocess.DEVNULL)
    client.start_victims(1)
    session = client.ask("process().runtime.session")
    client.ask("victims.spew.call_one(20_000).get(timeout=20)")
    client.ask("victims.write.call_one('the end\\n', '').get()")
    assert client.finish() == 0
    live.census.wait_gone(GONE_S, but={daemon.pid})
    logs = sorted(daemon.directory.glob(f"workers-{session[:8]}.log*"))
    assert len(logs) == 2
    assert sum(path.stat().st_size for path in logs) <= 200_000
    assert "the end" in logs[0].read_text()


def test_the_logs_of_the_sessions_that_ended_last_stay_with_what_was_rotated(
    live: Live, limit: Limit
) -> None:
    kept = 16
    limit(session_log_bytes_max=20_000)
    daemon = live.daemon()
    sessions = []
    for _ in range(kept + 1):
        client = live.client(address=daemon.address, stdout=subprocess.DEVNULL)
        client.start_victims(1)
        sessions.append(client.ask("process().runtime.session")[:8])
        client.ask("victims.spew.call_one(1000).get(timeout=20)")
        assert client.finish() == 0
    live.census.wait_gone(GONE_S, but={daemon.pid})
    logs = sorted(path.name for path in daemon.directory.glob("workers-*.log*"))
    assert logs == sorted(
        f"workers-{session}.log{suffix}" for session in sessions[1:] for suffix in ("", ".1")
    )


def test_a_start_that_takes_too_long_fails_with_its_phase(live: Live) -> None:
    daemon = live.daemon("--spawn-phase-ms", "300")
    client = live.client(address=daemon.address)
    fifo = live.fifo("waits")
    error = client.fails(f"spawn_with_one_that_waits(1, 0, {str(fifo)!r}).initialized.get(timeout=20)")
    assert error.fields["phase"], error.fields
    assert client.finish() == 0


def test_a_killed_clients_workers_are_killed_when_their_time_is_over(live: Live, limit: Limit) -> None:
    limit(session_end_kill_ms=100)
    client = live.client()
    client.start_victims(2)
    client.ask("victims.run.call('import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [15])').get()")
    pids = client.ask("procs.pids()")
    client.kill()
    assert all(wait_exit(pid, GONE_S) for pid in pids)
    live.assert_gone()


def test_a_silent_host_is_gone(live: Live, limit: Limit) -> None:
    limit(host_dead_ms=300)
    worker = live.worker()
    client = live.client()
    client.ask("from spread import *")
    client.ask(f"(procs, victims) = spread_victims(attach({worker.address!r}))", 60)
    os.kill(worker.pid, signal.SIGSTOP)
    error = client.fails("victims.ping.call().get(timeout=20)")
    os.kill(worker.pid, signal.SIGCONT)
    assert error.fields["kind"] == "unreachable"
    assert client.finish() == 0


def test_a_session_whose_home_is_silent_ends(live: Live) -> None:
    worker = live.worker("--host-dead-ms", "200", "--remote-lease-ms", "400")
    client = live.client()
    client.ask("from spread import *")
    client.ask(f"(procs, victims) = spread_victims(attach({worker.address!r}))", 60)
    pids = client.ask("procs.pids()")
    home = client.daemon()
    os.kill(home, signal.SIGSTOP)
    assert all(wait_exit(pid, EVENT_S) for pid in pids)
    os.kill(home, signal.SIGCONT)
    assert client.finish() == 0


def test_workers_whose_daemon_does_not_come_back_end(live: Live) -> None:
    daemon = live.daemon("--host-dead-ms", "100", "--remote-lease-ms", "200", "--daemon-absence-ms", "300")
    client = live.client(address=daemon.address)
    pids = client.start_victims(2)
    daemon.process.kill()
    daemon.process.wait(EVENT_S)
    assert all(wait_exit(pid, EVENT_S) for pid in pids)
    client.kill()


def test_a_process_that_does_not_stop_is_ended_when_its_grace_is_over(live: Live) -> None:
    daemon = live.daemon("--session-end-kill-ms", "100", "--stop-grace-ms", "200")
    client = live.client(address=daemon.address)
    (pid,) = client.start_victims(1)
    fifo = live.fifo("hangs")
    client.ask(f"hanging = victims.hang.call_one({str(fifo)!r})")
    assert int(read_fifo(fifo)) == pid
    # A grace of 0: the daemon's.
    (end,) = client.ask("process().control().stop_procs(procs._core.procs, 0, 100, 'enough')")
    assert end["reason"].startswith("enough; ")
    assert client.finish() == 0


def test_a_circle_longer_than_the_limit_is_not_found(live: Live, limit: Limit) -> None:
    limit(call_depth_max=2)
    client = live.client()
    client.start_victims(5)
    client.ask("(a, b, c, d, e) = (victims.slice(gpus=rank) for rank in range(5))")
    client.ask("long = a.ask.call_one(b, 'ask', c, 'ask', a, 'ping')")
    short = client.fails("d.ask.call_one(e, 'ask', d, 'ping').get(timeout=20)")
    assert "each of these waits for the next" in short.fields["text"]
    assert client.fails("long.get(timeout=0)").is_a("TimeoutError")
    client.ask("procs.stop().get(timeout=20)")
    assert client.finish() == 0


def test_a_call_too_many_is_refused_and_there_is_room_again(live: Live, limit: Limit) -> None:
    limit(calls_pending_max=20)
    client = live.client()
    client.start_victims(1)
    fifo = live.fifo("gate")
    client.ask(f"blocked = victims.wait_for.call_one({str(fifo)!r})")
    client.ask("calls = []")
    error = client.fails("[calls.append(victims.ping.call_one()) for _ in range(40)]")
    assert error.is_a("ResourceExhausted")
    assert "calls_pending_max=20 is reached" in error.fields["text"]
    with open(fifo, "w", encoding="utf-8"):
        pass
    client.ask("blocked.get(timeout=20)")
    assert set(client.ask("[call.get(timeout=20) for call in calls]")) == {0}
    assert client.ask("victims.ping.call_one().get(timeout=20)") == 0
    assert client.finish() == 0


def test_output_that_nobody_reads_takes_no_more_than_its_limit(live: Live, limit: Limit) -> None:
    buffered = 100_000
    limit(output_buffer_bytes_max=buffered)
    read, write = os.pipe()
    in_pipe = fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
    client = live.client(stdout=write)
    os.close(write)
    client.start_victims(1)
    client.ask("victims.spew.call_one(20_000).get(timeout=20)")
    client.ask("victims.write.call_one('the end\\n', '').get()")
    data = read_until(read, b"the end\n")
    os.close(read)
    assert b"bytes of output dropped: its reader is too slow" in data
    assert len(data) < buffered + in_pipe + 200, len(data)
    assert client.finish() == 0


def test_who_sends_through_the_daemon_to_one_that_reads_nothing_has_the_error(
    live: Live, limit: Limit
) -> None:
    limit(send_wait_ms=300)
    daemon = live.daemon("--ring-links-max", "0", "--relay-pause-bytes", "5000")
    client = live.client(address=daemon.address)
    (pid, _) = client.start_victims(2)
    client.ask("(stopped, other) = (victims.slice(gpus=rank) for rank in range(2))")
    os.kill(pid, signal.SIGSTOP)
    sent = client.ask("flood(stopped, 1000, 60)", 90)
    assert "relay_pause_bytes=" in sent["error"], sent
    assert client.ask("other.count.call_one().get(timeout=20)") == 0
    os.kill(pid, signal.SIGCONT)
    assert client.ask("stopped.count.call_one().get(timeout=20)") == sent["sent"]
    assert client.finish() == 0


def test_frames_beyond_the_queue_to_a_host_come_back(live: Live, limit: Limit) -> None:
    # Below the size at which senders pause.
    limit(relay_queue_bytes_max=100_000, host_dead_ms=60_000, remote_lease_ms=120_000)
    worker = live.worker()
    client = live.client()
    client.ask("from spread import *")
    client.ask(f"(procs, victims) = spread_victims(attach({worker.address!r}))", 60)
    os.kill(worker.pid, signal.SIGSTOP)
    # By no segment, and fewer than what a receiver holds back for the sake of their order.
    client.ask("calls = [victims.echo.call_one(b'x' * 1000) for _ in range(800)]")
    client.ask("calls[-1].exception(timeout=20) and None")
    os.kill(worker.pid, signal.SIGCONT)
    ends = client.ask("[str(call.exception(timeout=20) or '') for call in calls]", 60)
    refused = [end for end in ends if end]
    assert 0 < len(refused) < len(ends)
    assert all("not delivered: relay frame: relay_queue_bytes_max=100000" in end for end in refused)
    assert client.ask("victims.ping.call_one().get(timeout=20)") == 0
    assert client.finish() == 0
