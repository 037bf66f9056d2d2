"""`monarchctl stack` on real processes."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from live import Client, Live

HOLD = "import ctypes\nopen({path!r}, 'w').close()\nctypes.PyDLL(None).pause()"


def stacks(live: Live, target: str) -> list[dict[str, Any]]:
    arguments = ("--address", live.private_address(), "--timeout", "60")
    return list(json.loads(live.ctl("stack", "--json", *arguments, target).stdout)["processes"])


def python_of(process: dict[str, Any]) -> str:
    return "\n".join(frame for thread in process["threads"] for frame in thread["python"])


def started(live: Live) -> Client:
    client = live.client()
    client.start_victims(2)
    return client


def begin(client: Client, rank: int, code: str, path: str) -> None:
    client.ask(f"victims.slice(gpus={rank}).run.broadcast({code!r})")
    with open(path, encoding="utf-8"):
        pass


def test_a_member_whose_interpreter_is_held(live: Live) -> None:
    client = started(live)
    path = str(live.fifo("held"))
    begin(client, 1, HOLD.format(path=path), path)
    (held,) = stacks(live, "victims:1")
    assert held["pid"] == client.ask("procs.pids()")[1]
    assert "run (" in python_of(held)
    assert all(thread["native"] for thread in held["threads"])
    assert client.ask("victims.slice(gpus=0).ping.call_one().get()") == 0
    text = live.ctl("stack", "victims:1", "--address", live.private_address(), "--timeout", "60").stdout
    assert "live_actors.py:" in text
    assert f"(pid {held['pid']})" in text


def test_a_stopped_process_is_read_and_stays_stopped(live: Live) -> None:
    client = started(live)
    pid = client.ask("procs.pids()")[0]
    os.kill(pid, signal.SIGSTOP)
    (stopped,) = stacks(live, str(pid))
    assert "_worker.py" in python_of(stopped)
    os.kill(pid, signal.SIGCONT)
    assert client.ask("victims.slice(gpus=0).ping.call_one().get()") == 0


def test_all_processes_and_nobody(live: Live) -> None:
    client = started(live)
    found = stacks(live, "")
    assert {process["pid"] for process in found} == {client.pid, *client.ask("procs.pids()")}
    done = live.ctl("stack", "nobody", "--address", live.private_address(), check=False)
    assert (done.returncode, done.stdout) == (5, "")
    assert "no process nobody is known" in done.stderr
