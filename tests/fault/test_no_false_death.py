"""What lives is not called dead: held interpreter locks, stopped processes, no CPU to spare, large transfers and a wall
clock that jumps, all at the same time, on two hosts."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from live import FULL, SUPPORT, Live

HOLD_S = 120 if FULL else 20
HOLDS = 5 if FULL else 1
RUN_S = HOLD_S * HOLDS + 5
CHUNK = 64 << 20
CHUNKS = 64 if FULL else 16  # of 4 GiB, or 1 GiB
BUSY = 8
HUNG_S = 3
PATIENCE_S = RUN_S + 600  # the transfers wait for CPUs, too

# The ranks of a mesh on two hosts.
HOLDING, STOPPED, FREE = (0, 3), (1, 4), (2, 5)

# The wall clock's error in the first, second and third part of the run, in seconds.
STEPS = (86400, -86400, 0)

TRANSFER = """
def transfer(one, size, count):
    data = b"x" * size
    under_way = []
    for _ in range(count):
        under_way.append(one.take.call_one(data))
        if len(under_way) > 1:
            under_way.pop(0).get()
    for call in under_way:
        call.get()
    return one.count.call_one().get()
"""
HOLD = f"import ctypes; libc = ctypes.PyDLL(None); [libc.sleep({HOLD_S}) for _ in range({HOLDS})]"


@contextlib.contextmanager
def load(count: int) -> Iterator[None]:
    spin = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
    processes = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


class WallClock:
    """That of all programs started from here on; the machine's stays as it is."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        library = folder / "wall_clock.so"
        source = str(SUPPORT / "wall_clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), source, "-ldl"], check=True)
        self._path = folder / "clock"
        self._path.write_bytes(bytes(8))
        monkeypatch.setenv("MONARCH_TEST_CLOCK", str(self._path))
        monkeypatch.setenv("LD_PRELOAD", str(library))

    def step(self, seconds: int) -> None:
        with self._path.open("r+b") as file:
            file.write(struct.pack("=q", seconds))


@contextlib.contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def known_failures(live: Live) -> list[dict[str, Any]]:
    """Of both daemons; others may run here, with failures of their own."""
    records = []
    names = live.run_dirs()
    assert len(names) == 2
    for name in names:
        done = live.ctl("why", f"--address=unix:{live.folder}/monarch/{name}", "--json", check=False)
        (daemon,) = json.loads(done.stdout)["daemons"]
        assert daemon["answered"]
        records += daemon["failures"]["failures"]
    return records


@pytest.mark.timeout(PATIENCE_S)
def test_nothing_that_lives_is_called_dead(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    wall_clock = WallClock(live.folder, monkeypatch)
    monkeypatch.setenv("MONARCH_HUNG_AFTER", f"{HUNG_S}s")
    worker = live.worker()
    client = live.client()
    client.ask("from spread import *")
    client.ask(f"hosts = [process().self_proc[0]] * 3 + attach({worker.address!r}) * 3", 60)
    client.ask("(procs, victims) = spread_victims(hosts)", 60)
    client.ask(TRANSFER)
    pids = client.ask("victims.pid.call().get().values()")
    one = "victims.slice(gpus={})".format
    answered = 0
    with load(BUSY):
        holds = [client.begin(f"{one(rank)}.run.call_one({HOLD!r}).get()") for rank in HOLDING]
        transfers = [client.begin(f"transfer({one(rank)}, {CHUNK}, {CHUNKS})") for rank in FREE]
        with stopped([pids[rank] for rank in STOPPED]):
            waiting = [client.begin(f"{one(rank)}.pid.call_one().get()") for rank in STOPPED]
            begun = time.monotonic()
            while (passed := time.monotonic() - begun) < RUN_S:
                wall_clock.step(STEPS[int(passed / RUN_S * len(STEPS))])
                for rank in FREE:
                    assert client.ask(f"{one(rank)}.pid.call_one().get()", PATIENCE_S) == pids[rank]
                    answered += 1
        assert [client.result(call, PATIENCE_S) for call in waiting] == [pids[rank] for rank in STOPPED]
        assert [client.result(call, PATIENCE_S) for call in holds] == [None, None]
        assert [client.result(call, PATIENCE_S) for call in transfers] == [CHUNKS, CHUNKS]
        assert client.ask("victims.pid.call().get().values()", PATIENCE_S) == pids
    assert answered >= RUN_S / 5
    assert client.ask("failures_so_far()") == []
    records = known_failures(live)
    assert {record["event"]["kind"] for record in records} == {"FAILURE_KIND_HUNG"}, records
    assert {record["event"].get("rank", 0) for record in records} >= {*HOLDING}
    # Else there was no step.
    off = {abs(int(record["unix_ms"]) / 1000 - time.time()) > max(STEPS) / 2 for record in records}
    assert True in off
    assert client.finish() == 0
