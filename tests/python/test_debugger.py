"""breakpoint() in endpoints: sessions, the operator's commands, and what happens when either side goes away."""

from __future__ import annotations

import asyncio
import contextlib
import linecache
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import EVENT_S
from monarch._debugger.debug_command import Attach, Cast, Continue, Help, ListCommand, Quit, parse_command
from monarch._debugger.debug_session import DebugSession, DebugSessions
from monarch.actor import Actor, ActorError, SupervisionError, current_rank, debug_controller, endpoint

MAX = sys.maxsize


class Worker(Actor):
    @endpoint
    def add(self, start: int) -> int:
        value = start + current_rank().rank
        breakpoint()
        value += 10
        value += 100
        return value

    @endpoint
    def divide(self, number: int) -> float:
        breakpoint()
        return 1 / number

    @endpoint
    def pid(self) -> int:
        return os.getpid()


class Applies(Actor):
    @endpoint
    def apply(self, function: Any) -> Any:
        return function()


class AsyncWorker(Actor):
    @endpoint
    async def add(self, value: int) -> int:
        breakpoint()
        await asyncio.sleep(0)
        return value + 1


@pytest.fixture
def workers(spawn_procs: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MONARCH_DEBUG_SERVER_PORT", "0")
    return spawn_procs({"gpus": 2}).spawn("workers", Worker)


class Operator:
    """Someone at the debugger's client."""

    def __init__(self) -> None:
        host, port = debug_controller().address.call_one().get(timeout=EVENT_S)
        assert host == "127.0.0.1"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "monarch.debug", host, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.seen = ""
        self.until("monarch_dbg> ")

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    def until(self, text: str) -> str:
        """Reads until `text` has come; returns what came before."""
        assert self.process.stdout is not None
        while text not in self.seen:
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, self.seen
            self.seen += data.decode()
        before, _, self.seen = self.seen.partition(text)
        return before

    def ask(self, line: str, prompt: str = "monarch_dbg> ") -> str:
        self.type(line)
        return self.until(prompt)

    def quit(self) -> None:
        self.type("quit")
        assert self.process.wait(EVENT_S) == 0


@pytest.fixture
def operator(workers: Any) -> Iterator[Any]:
    operators: list[Operator] = []

    def start() -> Operator:
        operators.append(Operator())
        return operators[-1]

    yield start
    for left in operators:
        left.process.kill()
        left.process.wait()
        for stream in (left.process.stdin, left.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def wait_sessions(count: int) -> Any:
    """The list, once so many wait at their prompts."""
    while True:
        debug_controller().wait_pending_session.call_one().get(timeout=EVENT_S)
        infos = debug_controller().list.call_one(print_output=False).get(timeout=EVENT_S)
        if len([info for info in infos if info.lineno is not None]) == count:
            return infos


def test_attach_steps_and_goes_on(workers: Any, operator: Any) -> None:
    answer = workers.add.call(1)
    infos = wait_sessions(2)
    assert [(info.actor_name, info.rank, info.coords) for info in infos] == [
        ("workers", 0, {"gpus": 0}),
        ("workers", 1, {"gpus": 1}),
    ]
    assert {info.function for info in infos} == {"test_debugger.add"}
    someone = operator()
    table = someone.ask("list")
    assert re.search(r"workers +1 +gpus=1 .* test_debugger.add +\d+", table)
    assert "value += 10" in someone.ask("attach workers 1", "(Pdb) ")
    assert "2" in someone.ask("p value", "(Pdb) ")
    assert "value += 100" in someone.ask("n", "(Pdb) ")
    someone.ask("value = 1000", "(Pdb) ")
    someone.ask("detach")
    # What was printed last is shown again.
    someone.ask("attach workers 1", "(Pdb) ")
    assert "Detached" in someone.ask("c")
    someone.ask("continue")
    assert answer.get(timeout=EVENT_S).values() == [111, 1100]
    assert len(debug_controller().list.call_one(print_output=False).get(timeout=EVENT_S)) == 0
    someone.quit()


def test_stepping_out_of_the_endpoint_ends_the_session(workers: Any, operator: Any) -> None:
    answer = workers.slice(gpus=0).add.call_one(1)
    wait_sessions(1)
    someone = operator()
    someone.ask("attach workers 0", "(Pdb) ")
    for _ in range(3):
        someone.ask("n", "(Pdb) ")
    assert "its endpoint has ended" in someone.ask("n")
    assert answer.get(timeout=EVENT_S) == 111
    assert workers.pid.call().get(timeout=EVENT_S)


def test_cast_reaches_the_ranks_that_it_names(workers: Any, operator: Any) -> None:
    answer = workers.add.call(1)
    wait_sessions(2)
    someone = operator()
    someone.ask("cast workers ranks(gpus=1) value = 7")
    someone.ask("cast workers ranks(:) n")
    someone.ask("cast workers ranks(0,1) c")
    assert answer.get(timeout=EVENT_S).values() == [111, 117]
    assert "No rank of nobody" in someone.ask("cast nobody ranks(0) n")


def test_an_exception_after_a_breakpoint_can_be_looked_at(workers: Any, operator: Any) -> None:
    answer = workers.slice(gpus=0).divide.call_one(0)
    wait_sessions(1)
    someone = operator()
    someone.ask("attach workers 0", "(Pdb) ")
    assert "ZeroDivisionError" in someone.ask("c", "(Pdb) ")
    assert "0" in someone.ask("p number", "(Pdb) ")
    someone.ask("c")
    with pytest.raises(ActorError, match="ZeroDivisionError"):
        answer.get(timeout=EVENT_S)


def test_async_endpoints(spawn_procs: Any, operator: Any) -> None:
    answer = spawn_procs({"gpus": 1}).spawn("a_worker", AsyncWorker).add.call_one(1)
    wait_sessions(1)
    someone = operator()
    someone.ask("attach a_worker 0", "(Pdb) ")
    someone.ask("value = 5", "(Pdb) ")
    someone.ask("c")
    assert answer.get(timeout=EVENT_S) == 6


def test_quit_in_pdb_ends_the_endpoint_and_not_the_actor(workers: Any, operator: Any) -> None:
    answer = workers.slice(gpus=0).add.call_one(1)
    wait_sessions(1)
    someone = operator()
    someone.ask("attach workers 0", "(Pdb) ")
    someone.ask("q")
    with pytest.raises(ActorError, match="BdbQuit"):
        answer.get(timeout=EVENT_S)
    assert len(workers.pid.call().get(timeout=EVENT_S)) == 2


def test_a_rank_that_dies_ends_its_session(workers: Any, operator: Any) -> None:
    [pid, _] = workers.pid.call().get(timeout=EVENT_S).values()
    answer = workers.slice(gpus=0).add.call_one(1)
    wait_sessions(1)
    someone = operator()
    someone.ask("attach workers 0", "(Pdb) ")
    os.kill(pid, signal.SIGKILL)
    assert "The session is over" in someone.until("monarch_dbg> ")
    with pytest.raises(SupervisionError):
        answer.get(timeout=EVENT_S)
    assert "No debug sessions for actor workers" in someone.ask("attach workers 0")


def test_an_operator_who_goes_away_leaves_the_session(workers: Any, operator: Any) -> None:
    answer = workers.slice(gpus=0).add.call_one(1)
    wait_sessions(1)
    first = operator()
    first.ask("attach workers 0", "(Pdb) ")
    first.process.kill()
    second = operator()
    second.ask("attach workers 0", "(Pdb) ")
    # Who comes takes over from who is there.
    third = operator()
    assert "Another operator" in second.until("taken over")
    assert second.process.wait(EVENT_S) == 0
    third.ask("continue")
    assert answer.get(timeout=EVENT_S) == 111


def test_stopping_the_processes_does_not_wait_for_the_operator(workers: Any, spawn_procs: Any) -> None:
    procs = spawn_procs({"gpus": 1})
    answer = procs.spawn("stopped", Worker).add.call_one(1)
    wait_sessions(1)
    procs.stop().get(timeout=EVENT_S)
    with pytest.raises(SupervisionError):
        answer.get(timeout=EVENT_S)


def test_two_meshes_of_one_name_have_sessions_of_their_own(
    workers: Any, spawn_procs: Any, operator: Any
) -> None:
    other = spawn_procs({"gpus": 1}).spawn("workers", Worker)
    answers = [workers.slice(gpus=0).add.call_one(1)]
    wait_sessions(1)
    answers.append(other.add.call_one(2))
    assert [info.actor_name for info in wait_sessions(2)] == ["workers", "workers~2"]
    operator().ask("continue")
    assert [answer.get(timeout=EVENT_S) for answer in answers] == [111, 112]


def test_the_whole_file_is_shown_where_only_the_client_has_it(
    spawn_procs: Any, operator: Any, tmp_path: Any
) -> None:
    text = "BEFORE = 1\n\n\ndef stop_here():\n    breakpoint()\n    return BEFORE\n"
    file = tmp_path / "clients_own.py"
    file.write_text(text)
    names: dict[str, Any] = {"__name__": "clients_own"}
    exec(compile(text, str(file), "exec"), names)
    linecache.getlines(str(file))
    file.unlink()
    answer = spawn_procs({"gpus": 1}).spawn("applies", Applies).apply.call_one(names["stop_here"])
    wait_sessions(1)
    someone = operator()
    someone.ask("attach applies 0", "(Pdb) ")
    assert "BEFORE = 1" in someone.ask("l 1, 6", "(Pdb) ")
    assert "Breakpoint" in someone.ask(f"b {file}:6", "(Pdb) ")
    someone.ask("continue", "monarch_dbg> ")
    assert answer.get(timeout=EVENT_S) == 1


PROGRAM = """
import sys
from monarch.actor import Actor, ActorError, endpoint, this_host

class Worker(Actor):
    @endpoint
    def stop_here(self):
        breakpoint()

worker = this_host().spawn_procs({"gpus": 1}).spawn("worker", Worker)
try:
    worker.stop_here.call_one().get()
except ActorError as error:
    print(type(error.exception).__name__, error.exception)
"""


def test_a_port_that_is_taken_is_an_error_of_breakpoint(run_python: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_python("-c", PROGRAM, env={**os.environ, "MONARCH_DEBUG_SERVER_PORT": port})
    assert done.status == 0
    assert f"the debugger cannot listen at 127.0.0.1:{port}" in done.out
    assert "Set MONARCH_DEBUG_SERVER_PORT to another port" in done.out


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("PORT", "many", "MONARCH_DEBUG_SERVER_PORT is a port between 0 and 65535, not 'many'"),
        ("PROTOCOL", "udp", "MONARCH_DEBUG_SERVER_PROTOCOL is 'tcp'"),
    ],
)
def test_bad_settings_are_an_error_of_breakpoint(run_python: Any, name: str, value: str, text: str) -> None:
    env = {**os.environ, "MONARCH_DEBUG_SERVER_PORT": "0", f"MONARCH_DEBUG_SERVER_{name}": value}
    done = run_python("-c", PROGRAM, env=env)
    assert (done.status, text in done.out) == (0, True), done.out + done.err


def test_the_client_program_ending_ends_what_waits(run_python: Any) -> None:
    code = PROGRAM.replace(
        "worker.stop_here.call_one().get()", "future = worker.stop_here.call_one()"
    ).replace(
        "except ActorError as error:\n    print(type(error.exception).__name__, error.exception)",
        "finally:\n    from monarch.actor import debug_controller\n"
        "    debug_controller().wait_pending_session.call_one().get()",
    )
    done = run_python("-c", code, env={**os.environ, "MONARCH_DEBUG_SERVER_PORT": "0"})
    assert done.status == 0
    assert re.fullmatch(
        r"monarch: rank 0 of 'worker' waits at a breakpoint; talk to it with: "
        r"python -m monarch.debug 127.0.0.1 \d+\n",
        done.err,
    )


def test_outside_actors_breakpoint_is_pdb(run_python: Any) -> None:
    done = run_python("-c", "import monarch.actor\nbreakpoint()\nprint('after')", stdin="p 6 * 7\nc\n")
    assert (done.status, done.err) == (0, "")
    assert "42" in done.out
    assert done.out.endswith("after\n")


def test_the_operators_program_says_when_nothing_listens(run_python: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    done = run_python("-m", "monarch.debug", "127.0.0.1", port)
    assert (done.status, done.out) == (1, "")
    assert f"No debugger listens at 127.0.0.1:{port}" in done.err


# --- commands ---


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("a some-actor_1 3", Attach("some-actor_1", 3)),
        ("  attach x 0 ", Attach("x", 0)),
        ("l", ListCommand()),
        ("quit", Quit()),
        ("h", Help()),
        ("continue", Continue()),
        ("cast x ranks(4) b 7", Cast("x", 4, "b 7")),
        ("cast x ranks( 4, 5 ) !y = (1)", Cast("x", [4, 5], "!y = (1)")),
        ("cast x ranks(:) n", Cast("x", range(MAX), "n")),
        ("cast x ranks(2:9:3) n", Cast("x", range(2, 9, 3), "n")),
        ("cast x ranks(::2) n", Cast("x", range(0, MAX, 2), "n")),
        ("cast x ranks(a=1, b=(2,3), c=4:) n", Cast("x", {"a": 1, "b": [2, 3], "c": range(4, MAX)}, "n")),
    ],
)
def test_commands(line: str, command: Any) -> None:
    assert parse_command(line) == command


@pytest.mark.parametrize(
    "line",
    [
        "",
        "attach",
        "attach x",
        "attach x y",
        "attach x 1 2",
        "listen",
        "cast x ranks() n",
        "cast x ranks(1,) n",
        "cast x ranks(1:2:3:4) n",
        "cast x ranks(1:2,3) n",
        "cast x ranks(a=) n",
        "cast x ranks(a=(1,2) n",
        "cast x ranks(1)",
        "cast x ranks(::0) n",
        "cast ranks(1) n",
    ],
)
def test_what_is_no_command(line: str) -> None:
    with pytest.raises(ValueError):
        parse_command(line)


def test_sessions_are_found_by_rank_and_by_coordinates() -> None:
    sessions = DebugSessions()
    for rank in range(6):
        sessions.insert(DebugSession(rank, {"hosts": rank // 3, "gpus": rank % 3}, "host", "x"))

    def ranks(wanted: Any) -> list[int]:
        return [session.rank for session in sessions.iter(("x", wanted))]

    assert ranks(None) == [0, 1, 2, 3, 4, 5]
    assert ranks(4) == [4]
    assert ranks([1, 9]) == [1]
    assert ranks(range(1, MAX, 2)) == [1, 3, 5]
    assert ranks({"hosts": 1, "gpus": [0, 2]}) == [3, 5]
    assert ranks({"racks": 0}) == []
    assert list(sessions.iter(("y", None))) == []
    assert sessions.remove("x", 4).rank == 4
    assert ("x", 4) not in sessions
    with pytest.raises(ValueError, match="No debug session for rank 4 for actor x"):
        sessions.get("x", 4)
    with pytest.raises(ValueError, match="No debug sessions for actor y"):
        sessions.remove("y", 0)
    with pytest.raises(ValueError, match="Debug session for rank 1 already exists for actor x"):
        sessions.insert(DebugSession(1, {}, "", "x"))
