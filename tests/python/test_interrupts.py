"""Ctrl-C, once, ends every wait there is."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any, ClassVar

import pytest
from conftest import EVENT_S
from monarch._actor.interrupt import wait_interruptibly

START = """
import asyncio, ctypes, pickle, threading
from monarch.actor import Actor, Channel, debug_controller, endpoint, shutdown_context, this_host

class Worker(Actor):
    @endpoint
    def ready(self):
        pass
    @endpoint
    def hang(self, data=None):
        threading.Event().wait()
    @endpoint
    def hold(self):
        ctypes.PyDLL(None).pause()  # with the interpreter's lock

class SlowEnd(Worker):
    def __cleanup__(self, exc):
        threading.Event().wait()

def hang():
    threading.Event().wait()

def worker(cls=Worker):
    found = this_host().spawn_procs({"gpus": 1}).spawn("worker", cls)
    found.ready.call_one().get()
    return found

def hanging_procs():
    return this_host().spawn_procs({"gpus": 1}, bootstrap=hang)

def wait_here():
    print("waits", flush=True)
"""

WAITS = {
    "get": "w = worker(); wait_here(); w.hang.call_one().get()",
    "get_of_a_held_interpreter": "w = worker(); wait_here(); w.hold.call_one().get()",
    "stop_of_a_held_interpreter": "w = worker(); w.hold.broadcast(); wait_here(); w.stop().get()",
    "get_with_timeout": "w = worker(); wait_here(); w.hang.call_one().get(timeout=100)",
    "get_of_a_stream": "w = worker(); wait_here(); next(w.hang.stream()).get()",
    "values_of_call": "w = worker(); wait_here(); w.hang.call().get().values()",
    "result": "w = worker(); wait_here(); w.hang.call_one().result()",
    "await": """
async def main():
    w = worker()
    wait_here()
    await w.hang.call_one()
asyncio.run(main())
""",
    "get_in_a_coroutine": """
async def main():
    w = worker()
    wait_here()
    w.hang.call_one().get()
import warnings
warnings.simplefilter("ignore")
asyncio.run(main())
""",
    "await_in_uvloop": """
import uvloop
async def main():
    w = worker()
    wait_here()
    await w.hang.call_one()
uvloop.run(main())
""",
    "get_in_uvloop": """
import uvloop, warnings
async def main():
    w = worker()
    wait_here()
    w.hang.call_one().get()
warnings.simplefilter("ignore")
uvloop.run(main())
""",
    "recv": "r = Channel.open()[1]; wait_here(); r.recv().get()",
    "initialized": "p = hanging_procs(); wait_here(); p.initialized.get()",
    "pids": "p = hanging_procs(); wait_here(); p.pids()",
    "call_of_what_is_being_spawned": "w = hanging_procs().spawn('w', Worker); wait_here(); w.ready.call_one().get()",
    "pickle_of_what_is_being_spawned": "p = hanging_procs(); wait_here(); pickle.dumps(p)",
    "stop_of_actors": "w = worker(); w.hang.broadcast(); wait_here(); w.stop().get()",
    "stop_of_actors_whose_cleanup_hangs": "w = worker(SlowEnd); wait_here(); w.stop().get()",
    "stop_of_procs": """
p = this_host().spawn_procs({"gpus": 1})
w = p.spawn("worker", SlowEnd)
w.ready.call_one().get()
wait_here()
p.stop().get()
""",
    "shutdown": """
w = worker(SlowEnd)
wait_here()
shutdown_context().get()
threading.Event().wait()  # it may be done before the signal comes
""",
    "pids_in_a_coroutine": """
async def main():
    p = hanging_procs()
    wait_here()
    p.pids()
asyncio.run(main())
""",
    "send": "w = worker(); w.hang.broadcast(); wait_here()\nwhile True: w.hang.broadcast(bytes(1 << 20))",
    "debugger": "debug_controller(); wait_here(); debug_controller().wait_pending_session.call_one().get()",
    "context_exit": """
async def main():
    async with this_host().spawn_procs({"gpus": 1}) as procs:
        w = procs.spawn("worker", SlowEnd)
        await w.ready.call_one()
        w.hang.broadcast()
        wait_here()
asyncio.run(main())
""",
}


def is_asleep(pid: int) -> bool:
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "S"


def interrupt(process: subprocess.Popen[str], after_line: str) -> tuple[str, float]:
    """Sends one SIGINT when the program waits; returns its stderr and how long it took to end."""
    assert process.stdout is not None
    assert process.stdout.readline() == after_line
    while not is_asleep(process.pid):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    _, err = process.communicate(timeout=EVENT_S)
    return err, time.monotonic() - started


def start(tmp_path: Any, code: str) -> subprocess.Popen[str]:
    (tmp_path / "program.py").write_text(code)
    return subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(("timeout", "most"), [(None, 1.0), (0.02, 0.02), (0.0, 0.0)])
def test_no_sleep_is_so_long_that_a_signal_before_it_is_lost(timeout: float | None, most: float) -> None:
    class Rings(threading.Event):
        sleeps: ClassVar[list[float]] = []

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            self.sleeps.append(timeout)
            return len(self.sleeps) == 3 or super().wait(min(timeout, 0.03))

    Rings.sleeps.clear()
    wait_interruptibly(Rings(), timeout)
    assert 0 <= max(Rings.sleeps) <= most
    assert len(Rings.sleeps) == 3 if timeout is None else len(Rings.sleeps) <= 3


@pytest.mark.parametrize("wait", WAITS)
def test_one_ctrl_c_ends(tmp_path: Any, wait: str) -> None:
    process = start(tmp_path, START + WAITS[wait])
    err, seconds = interrupt(process, "waits\n")
    assert process.returncode in (130, -signal.SIGINT), err
    assert err.rstrip().endswith("KeyboardInterrupt"), err
    assert seconds < 5


FULL_MAILBOX = """
import _thread

sent = 0

def interrupt():
    # No signal wakes anybody: only the interpreter's flag is set, as by one that came before the sleep.
    before = -1
    while before != sent or not sent:
        before = sent
        threading.Event().wait(0.3)
    _thread.interrupt_main()

w = worker()
threading.Thread(target=interrupt, daemon=True).start()
wait_here()
while True:
    w.hang.broadcast(bytes(1 << 20))
    sent += 1
"""


def test_a_ctrl_c_just_before_a_send_waits_for_room_is_not_lost(tmp_path: Any) -> None:
    started = time.monotonic()
    process = start(tmp_path, START + FULL_MAILBOX)
    _, err = process.communicate(timeout=EVENT_S)  # Less than send_wait_ms.
    assert process.returncode in (130, -signal.SIGINT), err
    assert err.rstrip().endswith("KeyboardInterrupt"), err
    assert time.monotonic() - started < EVENT_S
