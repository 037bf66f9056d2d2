"""Why a process ended: what its owner's event, the caller's error and `monarchctl why` say of it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest
from live import Client, Live

# How the process ends, and what its event then has, as parts that the texts must contain.
CRASHES: dict[str, tuple[signal.Signals, str, str, str]] = {
    # code -> signal, reason, native frame, line of stderr
    "import ctypes; ctypes.memset(0x10, 0, 1)": (
        signal.SIGSEGV,
        r"access to address 0x10, which is not mapped, in thread \d+ \"",
        r"#\d+ 0x[0-9a-f]+ in ffi_call\+0x[0-9a-f]+ \(\S*libffi",
        "Fatal Python error: Segmentation fault",
    ),
    "import os; os.abort()": (
        signal.SIGABRT,
        r"raised by the process itself, in thread \d+ \"",
        r"#\d+ 0x[0-9a-f]+ in abort\+0x[0-9a-f]+ \(\S*libc\.so\.6\+0x",
        "Fatal Python error: Aborted",
    ),
    # An exception of C++ that nobody catches.
    "import ctypes; ctypes.CDLL('libstdc++.so.6')['_ZSt20__throw_out_of_rangePKc'](b'too far')": (
        signal.SIGABRT,
        "raised by the process itself",
        r"in std::__throw_out_of_range\(char const\*\)\+0x",
        "what():  too far",
    ),
}
ADJUST = "/proc/self/oom_score_adj"  # whom the kernel takes first
RUN = "victims.slice(gpus=1).run.call_one({!r}).get()"


@pytest.fixture
def client(live: Live) -> Client:
    client = live.client()
    client.start_victims(2)
    return client


def address(live: Live) -> str:
    """The client's own daemon: others may run here, with failures of their own."""
    (name,) = live.run_dirs()
    return f"--address=unix:{live.folder}/monarch/{name}"


def why(live: Live, *arguments: str) -> str:
    return live.ctl("why", address(live), *arguments).stdout


def without_numbers(text: str) -> str:
    """What differs from run to run."""
    text = re.sub(r"\(pid \d+\)", "(pid P)", text)
    text = re.sub(r" on \S+ \(pid", " on HOST (pid", text)
    return re.sub(r"\d+(ms|s) ago, session [0-9a-f]{8}", "T ago, session S", text)


@pytest.mark.parametrize("code", CRASHES)
def test_a_crash_has_its_native_and_python_frames(live: Live, client: Client, code: str) -> None:
    number, reason, frame, line = CRASHES[code]
    error = client.fails(
        RUN.format("import sys; print('about to', end='', file=sys.stderr, flush=True)\n" + code)
    )
    assert error.is_a("SupervisionError")
    assert f"Killed(sig={int(number)})" in error.fields["text"]
    (failure,) = client.ask("failures(1)")
    for event in (error.fields, failure):
        assert (event["kind"], event["code"]) == ("signalled", int(number))
        assert re.match(reason, event["reason"]), event["reason"]
        assert re.search(frame, event["backtrace"]), event["backtrace"]
        assert f"{number.name}: {event['reason']}" == event["backtrace"].split("\n")[0]
        # Text without a line end before the crash.
        assert "about to" in event["stderr_tail"]
        assert line in event["stderr_tail"]
        assert 'File "<run>", line 2' in event["stderr_tail"]
        assert "*** monarch" not in event["stderr_tail"]
    assert event["backtrace"] in failure["report"].replace("\n        ", "\n")
    told = why(live, "victims:1")
    assert f"killed by signal {int(number)} ({number.name}): {event['reason']}" in told.split("\n")[0]
    assert re.search(frame, told) and line in told


def test_an_exit_status_comes_with_the_last_lines(live: Live, client: Client) -> None:
    code = "import os, sys\nfor i in range(200): print('line', i, file=sys.stderr)\nos._exit(7)"
    error = client.fails(RUN.format(code))
    assert "exited with non-zero code 7" in error.fields["text"]
    client.ask("failures(1)")
    assert (error.fields["kind"], error.fields["code"], error.fields["backtrace"]) == ("exited", 7, "")
    assert error.fields["stderr_tail"].split("\n") == [f"line {i}" for i in range(150, 200)]
    lines = "".join(f"    line {i}\n" for i in range(150, 200))
    assert without_numbers(why(live)) == (
        "proc of mesh procs rank 1 {'gpus': 1/2} on HOST (pid P): exited with status 7\n"
        f"  last lines of stderr:\n{lines}"
        "  its actors: victims:1 (live_actors.Victim)\n"
        "  T ago, session S\n"
    )


def test_a_kill_says_what_is_known_of_its_cause(live: Live, client: Client) -> None:
    os.kill(client.ask("procs.pids()")[1], signal.SIGKILL)
    (failure,) = client.ask("failures(1)")
    assert (failure["kind"], failure["code"]) == ("signalled", 9)
    known = r"not for lack of memory, for oom_kill in /\S+ stayed \d+: somebody sent SIGKILL"
    unknown = "cause unknown: no cgroup counts memory here, so whether it was for lack of memory only the kernel's log "
    assert re.match(f"{known}|{unknown}", failure["reason"]), failure["reason"]
    head = without_numbers(why(live)).split("\n")[0]
    assert head == (
        "proc of mesh procs rank 1 {'gpus': 1/2} on HOST (pid P): killed by signal 9 (SIGKILL): "
        + failure["reason"]
    )


def test_an_exception_in_init_has_its_traceback(live: Live, client: Client) -> None:
    client.ask("broken = procs.spawn('broken', Raising)")
    error = client.fails("broken.pid.call().get(timeout=10)")
    assert "ValueError: no such thing" in error.fields["text"]
    client.ask("failures(2)")
    told = without_numbers(why(live, "broken[0]"))
    head, *rest = told.split("\n")
    assert head == (
        "actor live_actors.Raising of mesh broken rank 0 {'gpus': 0/2} on HOST (pid P): raised an exception: "
        "ValueError: no such thing"
    )
    assert rest[0] == "  traceback:"
    assert "in __init__" in told
    assert rest[-1] == ""


def test_the_chain_of_causes_leads_to_the_first(live: Live, client: Client) -> None:
    client.ask("owner = procs.slice(gpus=0).spawn('owner', Owning)")
    client.ask("owner.own.call_one(procs.slice(gpus=1)).get(timeout=20)")
    os.kill(client.ask("procs.pids()")[1], signal.SIGKILL)
    told = client.ask("failures(2)")
    (owner,) = [failure for failure in told if failure["mesh"] == "owner"]
    assert [owner["kind"], owner["cause"]["kind"], owner["cause"]["mesh"]] == [
        "exception",
        "signalled",
        "owned",
    ]
    text = why(live, "owner")
    first, second = re.findall(r"^ *(?:caused by: )?actor (\S+) of mesh (\S+) rank", text, re.M)
    assert (first, second) == (("live_actors.Owning", "owner"), ("live_actors.Victim", "owned"))
    # Also what was learned after the owner was told.
    assert owner["cause"]["reason"] and owner["cause"]["reason"] in text


def test_json_has_the_same(live: Live, client: Client) -> None:
    client.fails(RUN.format("import os; os.abort()"))
    client.ask("failures(1)")
    (daemon,) = json.loads(why(live, "--json", "victims"))["daemons"]
    (record,) = daemon["failures"]["failures"]
    event = record["event"]
    assert (event["kind"], event["code"], event["mesh"]) == (
        "FAILURE_KIND_SIGNALLED",
        int(signal.SIGABRT),
        "procs",
    )
    assert event["backtrace"].startswith("SIGABRT: raised by the process itself")
    assert record["lost_actors"] == [{"mesh": "victims", "rank": 1, "actor_class": "live_actors.Victim"}]


def test_what_has_not_failed_ends_with_5(live: Live, client: Client) -> None:
    done = live.ctl("why", address(live), check=False)
    assert (done.returncode, done.stdout) == (5, "no failure is known\n")
    done = live.ctl("why", address(live), "victims:0", check=False)
    assert (done.returncode, done.stdout) == (5, "no failure of victims:0 is known\n")


def test_a_failure_is_told_after_the_end_of_its_daemon(live: Live, client: Client) -> None:
    daemon = address(live)
    client.fails(RUN.format("import os, sys; print('last words', file=sys.stderr, flush=True); os._exit(7)"))
    client.ask("failures(1)")
    told = without_numbers(live.ctl("why", daemon).stdout)
    assert "exited with status 7" in told and "last words" in told
    assert client.finish() == 0
    live.assert_gone()
    assert without_numbers(live.ctl("why", daemon, "victims:1").stdout) == told
    (ended,) = json.loads(live.ctl("why", daemon, "--json").stdout)["daemons"]
    assert (ended["answered"], ended["ended"]) == (False, True)
    assert live.ctl("why", daemon, "victims:0", check=False).returncode == 5
    # What is damaged is no answer.
    (file,) = (live.folder / "monarch").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    os.truncate(file, file.stat().st_size - 1)
    done = live.ctl("why", daemon, check=False)
    assert done.returncode == 3
    assert f"{file}: damaged; passed over" in done.stderr


def test_without_a_failure_no_file_is_left(live: Live, client: Client) -> None:
    assert client.finish() == 0
    live.assert_gone()
    assert list((live.folder / "monarch").iterdir()) == []


@pytest.fixture
def memory_group() -> Iterator[pathlib.Path]:
    """A cgroup that a little program fits into, and nothing large."""
    (own,) = re.findall(r"^\d+:memory:(.*)$", pathlib.Path("/proc/self/cgroup").read_text(), re.M) or [None]
    root = pathlib.Path("/sys/fs/cgroup/memory")
    if own is None or not os.access(root / own.lstrip("/"), os.W_OK):
        pytest.skip("no version 1 memory cgroup can be made here")
    group = root / f"monarch-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(400 << 20))
        # The kernel may kill a second time before the first one's memory is back: it is to take one of these.
        with contextlib.ExitStack() as decoys:
            for _ in range(3):
                decoy = subprocess.Popen(["sleep", "600"], preexec_fn=lambda: enter(group, preferred=500))
                decoys.callback(decoy.wait)
                decoys.callback(decoy.kill)
            yield group
    finally:
        group.rmdir()


def enter(group: pathlib.Path, preferred: int = 0) -> None:
    (group / "cgroup.procs").write_text("0")
    pathlib.Path(ADJUST).write_text(str(preferred))


def test_a_kill_for_lack_of_memory_is_proven(memory_group: pathlib.Path, live: Live) -> None:
    client = live.client(preexec_fn=lambda: enter(memory_group))
    client.start_victims(2)
    error = client.fails(RUN.format(f"open('{ADJUST}', 'w').write('1000')\nb'x' * (1 << 30)"))
    assert "Killed(sig=9)" in error.fields["text"]
    assert (error.fields["kind"], error.fields["code"]) == ("out_of_memory", 9)
    counter = memory_group / "memory.oom_control"
    assert re.fullmatch(rf"oom_kill in {counter} rose from 0 to \d", error.fields["reason"])
    client.ask("failures(1)")
    assert "killed by the kernel for lack of memory: oom_kill in" in why(live).split("\n")[0]
    assert client.finish() == 0
    live.assert_gone()
