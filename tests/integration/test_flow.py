"""A producer that is faster than its consumer; frames that go through the daemon."""

from __future__ import annotations

import pytest
from census import resources, wait_exit
from live import FULL, Live

MIB = 1024


@pytest.mark.parametrize("size", [8, 1 << 10, 64 << 10])
def test_memory_stays_flat(live: Live, size: int) -> None:
    """The sender waits once the mailbox is full; what was sent arrives."""
    client = live.client()
    (worker,) = client.start_victims(1)
    fifo = live.fifo("gate")
    client.ask(f"blocked = victims.wait_for.call_one({str(fifo)!r})")
    idle = [resources(pid)["rss_kib"] for pid in (client.pid, worker)]
    seconds = 10 if FULL else 3
    flooding = client.begin(f"flood(victims, {size}, {seconds})")
    assert not wait_exit(worker, seconds / 2)
    half = [resources(pid)["rss_kib"] for pid in (client.pid, worker)]
    assert not wait_exit(worker, seconds / 2)
    full = [resources(pid)["rss_kib"] for pid in (client.pid, worker)]
    print(size, idle, half, full)
    # 64 MiB are the mailbox's, once in the worker and, where they go by segment, once in the client.
    for before, after in zip(idle, full, strict=True):
        assert after - before < 400 * MIB
    with open(fifo, "w", encoding="utf-8"):
        pass
    done = client.result(flooding, 60)
    assert done["error"] == ""
    client.ask("blocked.get()")
    assert client.ask("victims.count.call_one().get(timeout=60)", 60) == done["sent"]
    assert client.finish() == 0


@pytest.mark.skipif(not FULL, reason="waits for the half minute that a sender waits")
def test_a_full_mailbox_is_told_by_its_limit(live: Live) -> None:
    client = live.client()
    client.start_victims(1)
    fifo = live.fifo("gate")
    client.ask(f"blocked = victims.wait_for.call_one({str(fifo)!r})")
    flooding = client.begin(f"flood(victims, {64 << 10}, 60)")
    done = client.result(flooding, 90)
    assert "mailbox_bytes_max" in done["error"], done
    with open(fifo, "w", encoding="utf-8"):
        pass
    assert client.ask("victims.count.call_one().get(timeout=60)", 60) == done["sent"]


def test_all_frames_through_the_daemon(live: Live) -> None:
    daemon = live.daemon("--ring-links-max", "0")
    client = live.client(address=daemon.address)
    client.start_victims(3)
    assert client.ask("victims.ping.call().get(timeout=10).values()") == [0, 1, 2]
    for size in (10, 4096, 5000, 1 << 20, 20 << 20):
        client.ask(f"victims.take.call(b'x' * {size}).get(timeout=20)")
    assert client.ask("victims.count.call().get(timeout=10).values()") == [5, 5, 5]
    error = client.fails("victims.slice(gpus=2).die.call_one('SIGKILL').get()")
    assert error.is_a("SupervisionError") and error.fields["code"] == 9
    assert client.ask("victims.slice(gpus=slice(0, 2)).ping.call().get(timeout=10).values()") == [0, 1]
    assert client.finish() == 0


def test_casts_through_the_daemon_all_arrive(live: Live) -> None:
    daemon = live.daemon("--ring-links-max", "0")
    client = live.client(address=daemon.address)
    client.start_victims(3)
    for _ in range(3):
        client.ask("[victims.take.broadcast(b'y' * 100) for _ in range(10_000)]", 60)
    assert client.ask("victims.count.call().get(timeout=60).values()", 60) == [30_000] * 3
    assert client.finish() == 0
