"""A session ends: whoever ends it, its actors clean up, what they own first, and nothing is left."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess

import pytest
from census import GONE_S, wait_exit
from live import EVENT_S, SUPPORT, Live, read_fifo

START = f"""\
import os, pathlib, signal, sys, threading
sys.path.insert(0, {str(SUPPORT)!r})
from live_actors import *
log = str(pathlib.Path(__file__).parent / "log")
def cleaning(name, gpus=1, cleanup=""):
    return this_host().spawn_procs({{"gpus": gpus}}).spawn(name, Cleaning, log, name, cleanup)
"""

OWNER = """\
owner, plain = cleaning("owner"), cleaning("plain", 2)
owner.own.call_one().get()
plain.note.call("is there").get()
"""

WAYS = {
    "returns": ("", 0),
    "leaves": ("sys.exit(3)", 3),
    "raises": ("raise ValueError('wrong')", 1),
    "shuts_down": ("shutdown_context().get()", 0),
    "interrupted": ("os.kill(os.getpid(), signal.SIGINT); signal.pause()", -signal.SIGINT),
    "terminated": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "hung_up": ("os.kill(os.getpid(), signal.SIGHUP)", -signal.SIGHUP),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "leaves_at_once": ("os._exit(5)", 5),
}


def log_of(live: Live) -> list[str]:
    path = live.folder / "log"
    return path.read_text().splitlines() if path.exists() else []


def run(live: Live, text: str) -> tuple[int, str, str]:
    """The program to its end, and to that of its session."""
    process = live.script(START + text)
    out, err = process.communicate(timeout=2 * EVENT_S)
    live.assert_gone()
    return process.returncode, out, err


def assert_all_cleaned(live: Live) -> None:
    log = log_of(live)
    assert log.count("plain cleaned") == 2, log
    assert log.count("owned cleaned") == log.count("owner cleaned") == 1, log
    assert log.index("owned cleaned") < log.index("owner cleaned"), log


@pytest.mark.parametrize("way", WAYS)
def test_clean_ups_run_however_the_client_ends(live: Live, way: str) -> None:
    code, status = WAYS[way]
    returned, out, err = run(live, OWNER + code)
    assert returned == status, err
    assert out == ""
    assert_all_cleaned(live)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_clean_ups_run_while_the_daemon_is_away(live: Live, number: signal.Signals) -> None:
    daemon = live.daemon()
    program = START + OWNER + "print('ready', flush=True)\nsignal.pause()\n"
    process = live.script(f"import os\nos.environ['MONARCH_ADDRESS'] = {daemon.address!r}\n" + program)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    daemon.process.kill()
    daemon.process.wait()
    process.send_signal(number)
    assert process.wait(EVENT_S) == -number
    live.census.wait_gone(GONE_S)
    assert_all_cleaned(live)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_clean_ups_run_when_a_private_daemon_ends(live: Live, number: signal.Signals) -> None:
    live.run_dir_stays = True
    client = live.client(stderr=subprocess.DEVNULL)
    log = str(live.folder / "log")
    client.ask(f"cleaning = spawn(2).spawn('plain', Cleaning, {log!r}, 'plain')")
    client.ask("cleaning.note.call('is there').get()")
    os.kill(client.daemon(), number)
    assert client.ask("failures(1)")
    live.census.wait_gone(GONE_S, but={client.pid})
    assert log_of(live).count("plain cleaned") == 2
    client.finish()


def test_clean_ups_run_when_a_shared_daemon_is_stopped(live: Live) -> None:
    daemon = live.daemon()
    client = live.client(address=daemon.address, stderr=subprocess.DEVNULL)
    log = str(live.folder / "log")
    client.ask(f"cleaning = spawn(2).spawn('plain', Cleaning, {log!r}, 'plain')")
    client.ask("cleaning.note.call('is there').get()")
    daemon.process.terminate()
    assert daemon.process.wait(EVENT_S) == 0
    assert log_of(live).count("plain cleaned") == 2
    client.finish()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_daemon_says_which_signal_ended_the_client(live: Live, number: signal.Signals) -> None:
    daemon = live.daemon()
    client = live.client(address=daemon.address)
    client.start_victims(1)
    client.kill(number)
    assert client.process.wait(EVENT_S) == -number
    live.census.wait_gone(GONE_S, but={daemon.pid})
    assert f"its client was ended by {number.name}" in daemon.log.read_text()


def test_also_after_the_daemons_restart(live: Live) -> None:
    daemon = live.daemon()
    client = live.client(address=daemon.address)
    client.start_victims(1)
    daemon.process.kill()
    daemon.process.wait()
    following = live.daemon()
    client.ask("spawn(1).stop().get(timeout=20)", 60)
    client.kill(signal.SIGTERM)
    client.process.wait(EVENT_S)
    live.census.wait_gone(GONE_S, but={following.pid})
    assert "its client was ended by SIGTERM" in following.log.read_text()


def test_a_program_that_ignores_or_handles_a_signal_goes_on(live: Live) -> None:
    client = live.client()
    client.ask("import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    client.start_victims(1)
    client.ask("import signal, builtins; builtins.seen = []")
    client.ask("import signal, builtins; signal.signal(signal.SIGTERM, lambda *_: builtins.seen.append(1))")
    client.kill(signal.SIGHUP)
    client.kill(signal.SIGTERM)
    assert client.ask("victims.ping.call().get(timeout=10).values()") == [0]
    assert client.ask("len(seen)") == 1
    assert client.finish() == 0


def test_what_was_sent_is_handled_before_the_end(live: Live) -> None:
    """Also what waits for a mesh that is still being made."""
    text = "plain = cleaning('plain')\nfor i in range(500): plain.note.broadcast(f'got {i}')\n"
    assert run(live, text)[0] == 0
    assert log_of(live) == [*(f"plain got {i}" for i in range(500)), "plain cleaned"]


def test_nothing_is_waited_for_after_a_ctrl_c(live: Live) -> None:
    fifo = live.fifo("in-call")
    process = live.script(f"{START}{OWNER}cleaning('busy').hang.call({str(fifo)!r}).get()")
    read_fifo(fifo)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=EVENT_S)
    live.assert_gone()
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert_all_cleaned(live)
    assert "busy cleaned" not in log_of(live)


LONG_END = """\
import atexit, monarch
monarch.configure(cleanup_timeout="1000s")
busy = cleaning("busy", cleanup="threading.Event().wait()")
busy.note.call("is there").get()
atexit.register(print, "ends", flush=True)
"""


def test_a_ctrl_c_shortens_an_orderly_end(live: Live) -> None:
    process = live.script(START + LONG_END)
    assert process.stdout is not None
    assert process.stdout.readline() == "ends\n"
    stat = pathlib.Path(f"/proc/{process.pid}/stat")
    while stat.read_text().rsplit(")", 1)[1].split()[0] != "S":
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=EVENT_S)
    live.assert_gone()


STUCK = {
    "clean_up": "stuck = cleaning('stuck', cleanup='threading.Event().wait()'); stuck.note.call('there').get()",
    "endpoint": "stuck = cleaning('stuck'); stuck.hang.broadcast({fifo!r}); open({fifo!r}).read()",
}


@pytest.mark.parametrize("how", [*STUCK, "stopped"])
def test_what_does_not_end_is_killed_and_the_others_clean_up(live: Live, how: str) -> None:
    if how == "stopped":
        code = "procs, _ = start_victims(1); os.kill(*procs.pids(), signal.SIGSTOP)"
    else:
        code = STUCK[how].format(fifo=str(live.fifo("in-call")))
    assert run(live, OWNER + code)[0] == 0
    assert_all_cleaned(live)
    assert "stuck cleaned" not in log_of(live)


def test_a_clean_up_that_fails_at_the_end_is_told(live: Live) -> None:
    returned, _, err = run(live, "cleaning('plain', cleanup='1 / 0').note.call('is there').get()")
    assert returned == 0
    assert "failed while the program ended" in err
    assert "ZeroDivisionError" in err


LEFT = {
    "a child": "subprocess.Popen(['sleep', '1000'])",
    "deaf": "subprocess.Popen(['sh', '-c', 'trap \"\" TERM; while :; do sleep 1000; done'])",
    "in a session of its own": "subprocess.Popen(['setsid', '-f', 'sleep', '1000'])",
    "double-forked": "subprocess.run(['sh', '-c', '(setsid sh -c \"sleep 1000 & sleep 1000\" &) &'])",
    "begetting": """
subprocess.run(['sh', '-c', '(setsid sh -c "trap : TERM; while :; do setsid sleep 1000 & sleep 0.01; done" &) &'])""",
}


@pytest.mark.parametrize("kind", LEFT)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_workers_leave_goes_too(live: Live, kind: str, number: signal.Signals) -> None:
    client = live.client()
    client.start_victims(2)
    client.ask(f"victims.run.call({('import subprocess; ' + LEFT[kind].strip())!r}).get()")
    client.kill(number)
    client.process.wait(EVENT_S)
    live.assert_gone()


def test_children_are_told_by_a_term(live: Live) -> None:
    """What `__cleanup__` is for an actor."""
    client = live.client()
    client.start_victims(1)
    told, up = live.folder / "told", live.fifo("up")
    script = f"trap 'echo told > {told}; exit' TERM; echo up > {up}; while :; do sleep 1000 & wait; done"
    code = f"import subprocess; subprocess.Popen(['setsid', 'sh', '-c', {script!r}])"
    client.ask(f"victims.run.call({code!r}).get()")
    read_fifo(pathlib.Path(up))
    client.kill()
    client.process.wait(EVENT_S)
    live.assert_gone()
    assert told.read_text() == "told\n"


# What a clean-up does, with the kind and the code of what is told, and the first words of the cause.
CRASHES = {
    "segfault": (
        "import ctypes; ctypes.memset(0x10, 0, 1)",
        "SIGNALLED",
        signal.SIGSEGV,
        "access to address",
    ),
    "abort": ("import os; os.abort()", "SIGNALLED", signal.SIGABRT, "raised by the process itself"),
    "killed by others": ("import os; os.kill(os.getpid(), 9)", "SIGNALLED", signal.SIGKILL, ""),
    "status": ("import os; os._exit(7)", "EXITED", 7, ""),
}


@pytest.mark.parametrize("how", CRASHES)
def test_a_crash_in_a_stop_keeps_its_cause(live: Live, how: str) -> None:
    cleanup, kind, code, cause = CRASHES[how]
    client = live.client(stderr=subprocess.PIPE)
    log = str(live.folder / "log")
    client.ask("procs = spawn(2)")
    client.ask(f"cleaning = procs.slice(gpus=1).spawn('member', Cleaning, {log!r}, 'member', {cleanup!r})")
    client.ask("cleaning.note.call('is there').get()")
    client.ask("procs.stop().get()")
    (daemon,) = json.loads(live.ctl("why", "--json", "--address", live.private_address()).stdout)["daemons"]
    (record,) = daemon["failures"]["failures"]
    event = record["event"]
    assert (event["kind"], event["code"], event["rank"]) == (f"FAILURE_KIND_{kind}", code, 1)
    assert (
        event["reason"].startswith(cause)
        and "while it was being stopped: stopped by client" in event["reason"]
    )
    assert [lost["mesh"] for lost in record["lost_actors"]] == ["member"]
    # Who asked for the stop is warned, and does not fail by it.
    assert client.ask("failures_so_far()") == []
    assert client.finish() == 0
    assert client.process.stderr is not None
    warning = client.process.stderr.read().decode()
    assert "crashed when it was stopped" in warning and "mesh 'procs'" in warning, warning


def test_the_stop_of_what_crashed_before_is_no_crash(live: Live) -> None:
    client = live.client(stderr=subprocess.PIPE)
    client.start_victims(2)
    client.fails("victims.slice(gpus=1).die.call_one('SIGKILL').get()")
    client.ask("failures(1)")
    client.ask("procs.stop().get()")
    assert client.finish() == 0
    assert client.process.stderr is not None
    assert "crashed" not in client.process.stderr.read().decode()


def test_what_an_actor_owns_cleans_up_when_its_process_dies(live: Live) -> None:
    client = live.client()
    log = str(live.folder / "log")
    client.ask("procs = spawn(1)")
    client.ask(f"owner = procs.spawn('owner', Cleaning, {log!r}, 'owner')")
    client.ask("owner.own.call_one().get()")
    (daemon,) = json.loads(live.ctl("ps", "--json", "--address", live.private_address()).stdout)["daemons"]
    pids = [int(proc["pid"]) for proc in daemon["tree"]["sessions"][0]["procs"]]
    (pid,) = client.ask("procs.pids()")
    os.kill(pid, signal.SIGKILL)
    assert len(pids) == 2
    assert all(wait_exit(pid, GONE_S) for pid in pids)
    assert log_of(live)[-1] == "owned cleaned"
    client.ask("failures(1)")
    client.finish()
