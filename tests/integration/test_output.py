"""What workers write reaches the client's streams; a reader that is stuck, or a child that stays, holds up nobody."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time

from live import EVENT_S, SUPPORT, Live


def read_until(fd: int, text: bytes) -> bytes:
    data = b""
    deadline = time.monotonic() + EVENT_S
    while text not in data:
        assert select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0], data[-500:]
        more = os.read(fd, 1 << 16)
        assert more, data[-500:]
        data += more
    return data


def test_both_streams_reach_the_client(live: Live) -> None:
    client = live.client(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    client.start_victims(2)
    client.ask("victims.write.call('out \\u00e9\\n', 'err\\n').get()")
    assert client.process.stdout is not None and client.process.stderr is not None
    out = read_until(client.process.stdout.fileno(), "out é\n".encode())
    read_until(client.process.stderr.fileno(), b"err\n")
    assert client.finish() == 0
    out += client.process.stdout.read()
    assert out.splitlines().count("out é".encode()) == 2
    live.assert_gone()


def test_a_stuck_reader_blocks_nobody(live: Live) -> None:
    read, write = os.pipe()
    client = live.client(stdout=write, stderr=write)
    os.close(write)
    client.start_victims(2)
    # Ten times what pipe and buffer hold.
    spewing = client.begin("victims.slice(gpus=0).spew.call_one(800_000).get()")
    assert client.ask("[victims.slice(gpus=1).ping.call_one().get(timeout=10) for _ in range(100)]")
    assert client.result(spewing, 60) == 800_000
    assert client.ask("victims.ping.call().get(timeout=10).values()") == [0, 1]
    client.fails("victims.slice(gpus=1).die.call_one('SIGKILL').get()")
    # It is read again: what got lost is said.
    client.ask("victims.slice(gpus=0).write.call_one('the end\\n', '').get()")
    data = read_until(read, b"the end\n")
    os.close(read)
    assert b"lost" in data or b"dropped" in data or b"left out" in data, data[-1000:]
    assert client.finish() == 0
    live.assert_gone()


def test_a_stuck_reader_does_not_hold_up_the_end(live: Live) -> None:
    read, write = os.pipe()
    client = live.client(stdout=write, stderr=write)
    os.close(write)
    client.start_victims(2)
    client.ask("victims.spew.call(100_000).get()", 60)
    assert client.finish() == 0
    live.assert_gone()
    os.close(read)


def test_a_closed_reader_blocks_nobody(live: Live) -> None:
    read, write = os.pipe()
    client = live.client(stdout=write)
    os.close(write)
    client.start_victims(2)
    os.close(read)
    client.ask("victims.spew.call(10_000).get()", 60)
    assert client.ask("victims.ping.call().get(timeout=10).values()") == [0, 1]
    assert client.finish() == 0
    live.assert_gone()


HEAD = f"import sys; sys.path.insert(0, {str(SUPPORT)!r}); from live_actors import *\n"


def run(live: Live, text: str) -> tuple[subprocess.CompletedProcess[str], float]:
    path = live.folder / "program.py"
    path.write_text(HEAD + text)
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(path)], env=live.environment(), capture_output=True, text=True, timeout=EVENT_S
    )
    return done, time.monotonic() - started


def test_whoever_captures_the_output_gets_its_end(live: Live) -> None:
    """Neither daemon nor launcher nor what a worker left behind keeps the streams of the program open."""
    done, _ = run(live, "procs, victims = start_victims(2)\nvictims.family.call().get()\nprint('done')\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    live.assert_gone()


def test_also_when_it_leaves_without_a_goodbye(live: Live) -> None:
    text = "import os, time\nprocs, victims = start_victims(2)\nvictims.family.call().get()\n"
    done, _ = run(live, text + "print(time.monotonic(), flush=True)\nos._exit(7)\n")
    ended = time.monotonic()
    assert (done.returncode, done.stderr) == (7, "")
    assert ended - float(done.stdout) < 2
    live.assert_gone()


FORKS = """\
import os, signal
procs, victims = start_victims(2)
pid = os.fork()
if pid == 0:
    for use in (lambda: victims.ping.call().get(timeout=10), lambda: this_host().spawn_procs(),
                lambda: victims.ping.broadcast(), lambda: shutdown_context().get(timeout=10)):
        try:
            use()
        except RuntimeError as error:
            print("told" if "fork" in str(error) else error, flush=True)
        else:
            print("nothing", flush=True)
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
print(victims.ping.call().get(timeout=10).values())
"""


def test_a_forked_child_is_told_and_its_parent_goes_on(live: Live) -> None:
    """Also when the child runs the interpreter's whole end."""
    done, _ = run(live, FORKS)
    assert done.returncode == 0, done.stderr
    *told, status, answer = done.stdout.splitlines()
    assert told[:3] == ["told"] * 3
    assert (status, answer) == ("0", "[0, 1]")
    live.assert_gone()


def test_a_child_that_outlives_the_client(live: Live) -> None:
    """It holds copies of all fds of the client; the session ends all the same."""
    fifo = live.fifo("child")
    client = live.client()
    client.start_victims(2)
    client.ask(
        "import os, signal\nchild = os.fork()\n"
        f"if child == 0:\n    open({str(fifo)!r}).read()\n    os._exit(0)"
    )
    child = client.ask("child")
    client.kill()
    client.process.wait(EVENT_S)
    live.census.wait_gone(but={child})
    assert live.run_dirs() == []
    with open(fifo, "w", encoding="utf-8"):
        pass
    live.assert_gone()
