"""The first program in each setting a user may run it in: it prints its answer, nothing else, and leaves nothing."""

from __future__ import annotations

import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from conftest import EVENT_S

BODY = """\
from monarch.actor import Actor, endpoint, this_host

class Trainer(Actor):
    @endpoint
    def train(self, step):
        return step * 2

{guard}procs = this_host().spawn_procs({{"gpus": 2}})
{indent}trainers = procs.spawn("trainers", Trainer)
{indent}print(trainers.train.call(step=21).get().values())
"""
PLAIN = BODY.format(guard="", indent="")
GUARDED = BODY.format(guard='if __name__ == "__main__":\n    ', indent="    ")
ANSWER = "[42, 42]\n"


def assert_clean(done: Any) -> None:
    assert (done.status, done.out, done.err) == (0, ANSWER, "")


@pytest.mark.parametrize("text", [PLAIN, GUARDED], ids=["plain", "guarded"])
def test_file(run_python: Any, tmp_path: Any, text: str) -> None:
    (tmp_path / "program.py").write_text(text)
    assert_clean(run_python("program.py"))


def test_dash_c(run_python: Any) -> None:
    assert_clean(run_python("-c", PLAIN))


def test_standard_input(run_python: Any) -> None:
    assert_clean(run_python("-", stdin=PLAIN))


def test_dash_m(run_python: Any, tmp_path: Any) -> None:
    (tmp_path / "program.py").write_text(GUARDED)
    assert_clean(run_python("-m", "program"))


OUTLIVES_ITS_DAEMON = """
import atexit, os, pathlib, select, threading

def is_my_daemon(process):
    name, _, rest = (process / "stat").read_text().rpartition(")")
    return name.endswith("(monarchd") and int(rest.split()[1]) == os.getpid()

def after_monarch():
    select.select([pidfd], [], [])
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(0.5)  # for whoever hears of it to say so

atexit.register(after_monarch)
"""


def test_the_end_of_its_own_daemon_is_no_failure(run_python: Any, tmp_path: Any) -> None:
    text = (
        OUTLIVES_ITS_DAEMON
        + PLAIN
        + "(mine,) = filter(is_my_daemon, pathlib.Path('/proc').glob('[1-9]*'))\npidfd = os.pidfd_open(int(mine.name))\n"
    )
    (tmp_path / "program.py").write_text(text)
    assert_clean(run_python("program.py"))


def test_in_a_thread(run_python: Any, tmp_path: Any) -> None:
    text = PLAIN.replace("procs =", "def work():\n  procs =").replace("\ntrainers", "\n  trainers")
    text = (
        text.replace("\nprint", "\n  print")
        + "import threading\nt = threading.Thread(target=work)\nt.start()\nt.join()\n"
    )
    (tmp_path / "program.py").write_text(text)
    assert_clean(run_python("program.py"))


def test_in_a_coroutine(run_python: Any, tmp_path: Any) -> None:
    text = PLAIN.replace("procs =", "async def work():\n  procs =").replace("\ntrainers", "\n  trainers")
    text = text.replace(
        "\nprint(trainers.train.call(step=21).get()", "\n  print((await trainers.train.call(step=21))"
    )
    (tmp_path / "program.py").write_text(text + "import asyncio\nasyncio.run(work())\n")
    assert_clean(run_python("program.py"))


def test_get_in_a_coroutine_works_and_warns(run_python: Any, tmp_path: Any) -> None:
    text = PLAIN.replace("procs =", "async def work():\n  procs =").replace("\ntrainers", "\n  trainers")
    text = text.replace("\nprint", "\n  print")
    (tmp_path / "program.py").write_text(text + "import asyncio\nasyncio.run(work())\n")
    done = run_python("program.py")
    assert (done.status, done.out) == (0, ANSWER)
    assert "active event loop" in done.err
    assert "as_asyncio" in done.err


def test_interactive(tmp_path: Any) -> None:
    """At a terminal, as someone types it."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.environ["TERM"] = "dumb"
        os.environ["PYTHON_BASIC_REPL"] = "1"
        os.execv(sys.executable, [sys.executable, "-q"])
    seen = b""
    try:
        for line in [*PLAIN.replace("print", "\nprint").splitlines(), "exit()"]:
            os.write(fd, line.encode() + b"\n")
        deadline = time.monotonic() + EVENT_S
        while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                data = os.read(fd, 65536)
            except OSError:
                break
            if not data:
                break
            seen += data
    finally:
        os.close(fd)
        _, status = os.waitpid(pid, 0)
    assert b"[42, 42]" in seen, seen
    assert b"Traceback" not in seen and b"Warning" not in seen, seen
    assert os.waitstatus_to_exitcode(status) == 0


NOTEBOOK = """\
import sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="python3")
outputs = []
def hook(message):
    content = message["content"]
    outputs.append((message["msg_type"], content.get("name"), content.get("text") or content.get("evalue")))
for cell in {cells!r}:
    reply = client.execute_interactive(cell, timeout=40, output_hook=hook)
    assert reply["content"]["status"] == "ok", (reply, outputs)
client.stop_channels()
manager.shutdown_kernel()
shown = "".join(text for kind, name, text in outputs if name == "stdout")
rest = [output for output in outputs if output[0] in ("stream", "error") and output[1] != "stdout"]
print(shown, end="")
assert not rest, rest
"""


AWAITING = PLAIN.replace("trainers.train.call(step=21).get()", "(await trainers.train.call(step=21))")
DEFINITION, USE = PLAIN.split("procs =")


@pytest.mark.parametrize(
    "cells", [[PLAIN], [DEFINITION, "procs =" + USE], [AWAITING]], ids=["one cell", "two cells", "await"]
)
def test_notebook_cell(run_python: Any, tmp_path: Any, cells: list[str]) -> None:
    pytest.importorskip("ipykernel")
    pytest.importorskip("jupyter_client")
    (tmp_path / "notebook.py").write_text(NOTEBOOK.format(cells=cells))
    done = run_python(
        "notebook.py", env={**os.environ, "HOME": str(tmp_path), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    )
    assert (done.status, done.out) == (0, ANSWER), done.err


def test_prints_of_workers_appear(run_python: Any, tmp_path: Any) -> None:
    text = PLAIN.replace(
        "        return step * 2", "        print('worker says', step)\n        return step * 2"
    )
    (tmp_path / "program.py").write_text(text)
    done = run_python("program.py")
    assert done.status == 0
    assert sorted(done.out.splitlines()) == ["[42, 42]", "worker says 21", "worker says 21"]


def test_unhandled_failure_ends_the_program(run_python: Any, tmp_path: Any) -> None:
    text = PLAIN.replace("return step * 2", "raise ValueError('lost')").replace(
        "print(trainers.train.call(step=21).get().values())",
        "trainers.slice(gpus=0).train.broadcast(step=1)\nimport atexit, threading\n"
        "atexit.register(print, 'at exit')\nthreading.Event().wait(30)\nprint('not reached')",
    )
    (tmp_path / "program.py").write_text(text)
    done = run_python("program.py")
    assert done.status in (130, -signal.SIGINT)
    assert done.out == "at exit\n"
    assert re.search(r"Unhandled monarch error on the root actor, hostname=.*, PID=\d+ at time .*:", done.err)
    assert "ValueError: lost" in done.err
    assert "KeyboardInterrupt" in done.err
    assert done.seconds < 15


def test_unhandled_failure_interrupts_get(run_python: Any, tmp_path: Any) -> None:
    text = PLAIN.replace(
        "return step * 2", "import threading; threading.Event().wait() if step else 1 / 0"
    ).replace(
        "print(trainers.train.call(step=21).get().values())",
        "waiting = trainers.slice(gpus=1).train.call_one(step=1)\n"
        "trainers.slice(gpus=0).train.broadcast(step=0)\nwaiting.get()",
    )
    (tmp_path / "program.py").write_text(text)
    done = run_python("program.py")
    assert done.status in (130, -signal.SIGINT)
    assert "ZeroDivisionError" in done.err


def test_ctrl_c_interrupts_get(tmp_path: Any) -> None:
    text = PLAIN.replace(
        "return step * 2", "print('in', flush=True); import threading; threading.Event().wait()"
    )
    (tmp_path / "program.py").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    _, err = process.communicate(timeout=EVENT_S)
    assert process.returncode in (130, -signal.SIGINT)
    assert "KeyboardInterrupt" in err
    assert time.monotonic() - started < 5


def test_a_killed_client_leaves_nothing(tmp_path: Any) -> None:
    (tmp_path / "program.py").write_text(
        PLAIN + "import threading\nprint(*procs.pids(), flush=True)\nthreading.Event().wait()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == ANSWER
    pids = [int(pid) for pid in process.stdout.readline().split()]
    fds = [os.pidfd_open(pid) for pid in pids]
    process.kill()
    process.wait()
    try:
        for fd in fds:
            assert select.select([fd], [], [], 5)[0]
    finally:
        process.stdout.close()
        for fd in fds:
            os.close(fd)


def test_a_forked_child_is_told(run_python: Any, tmp_path: Any) -> None:
    text = PLAIN + (
        "import os\npid = os.fork()\nif pid == 0:\n"
        "    try:\n        trainers.train.call(step=1).get()\n    except RuntimeError as error:\n        print('call:', 'fork' in str(error))\n"
        "    try:\n        this_host().spawn_procs()\n    except RuntimeError as error:\n        print('spawn:', 'forked child' in str(error), flush=True)\n"
        "    os._exit(0)\nos.waitpid(pid, 0)\nprint(trainers.train.call(step=1).get().values())\n"
    )
    (tmp_path / "program.py").write_text(text)
    # From 3.12 on Python itself warns of a fork beside threads.
    done = run_python("-uWignore::DeprecationWarning", "program.py")
    assert (done.status, done.err) == (0, "")
    assert done.out == ANSWER + "call: True\nspawn: True\n[2, 2]\n"


def test_atexit_of_workers_runs(run_python: Any, tmp_path: Any) -> None:
    text = PLAIN.replace(
        "return step * 2", "import atexit; atexit.register(print, 'bye', flush=True); return step * 2"
    )
    (tmp_path / "program.py").write_text(text + "procs.stop().get()\n")
    done = run_python("program.py")
    assert (done.status, done.err) == (0, "")
    assert done.out == ANSWER + "bye\nbye\n"


def test_quickstart(run_python: Any) -> None:
    example = pathlib.Path(__file__).parents[2] / "examples/quickstart.py"
    done = run_python(str(example))
    assert (done.status, done.err) == (0, "")
    assert "killed by signal 9" in done.out
    assert done.out.endswith("stopped\n")


def test_importing_is_light(run_python: Any) -> None:
    heavy = "asyncio", "numpy", "torch", "grpc", "cloudpickle", "monarch._control", "inspect", "logging"
    code = f"import sys, monarch.actor, monarch._worker; print([m for m in {heavy!r} if m in sys.modules])"
    done = run_python("-c", code)
    assert (done.status, done.out) == (0, "[]\n")
