"""Limits of memory and of processes, held by the kernel: who is ended by them, who is not, and how that is known."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest
from census import GONE_S, wait_exit
from conftest import Session
from live import EVENT_S, Client

MEMORY_MAX = 256 << 20
PIDS_MAX = 60
LIMITS = f"memory_max={MEMORY_MAX}, pids_max={PIDS_MAX}"
EXHAUST_MEMORY = "import limit_faults; limit_faults.exhaust_memory()"
# A child whom the kernel takes first.
CHILD_EXHAUSTS_MEMORY = (
    "import subprocess, sys\n"
    "code = \"import limit_faults; open('/proc/self/oom_score_adj', 'w').write('1000'); "
    'limit_faults.exhaust_memory()"\n'
    "assert subprocess.run([sys.executable, '-c', code]).returncode == -9\n"
)


def spawn(client: Client, limits: str = LIMITS, *, count: int = 2) -> list[int]:
    """The processes `limited`; their pids."""
    client.ask(f"procs = this_host().spawn_procs({{'gpus': {count}}}, {limits})")
    client.ask("limited = procs.spawn('limited', Victim)")
    return list(client.ask(f"limited.pid.call().get(timeout={EVENT_S}).values()", EVENT_S))


def run(code: str, rank: int = 1) -> str:
    return f"limited.slice(gpus={rank}).run.call_one({code!r}).get(timeout={EVENT_S})"


@pytest.fixture
def client(session: Session) -> Iterator[Client]:
    """Nothing of the test's own processes is left."""
    yield session.client
    session.client.ask(f"procs.stop().get(timeout={EVENT_S})")
    session.wait_for_leaves(1)  # the others'


def assert_unharmed(session: Session, *, limited: int) -> None:
    """Those without limits go on, `limited` of those with them as well, and the next one starts."""
    client = session.client
    assert client.ask(f"unharmed.ping.call().get(timeout={EVENT_S}).values()") == [0]
    for rank in range(limited):
        assert client.ask(f"limited.slice(gpus={rank}).ping.call_one().get(timeout={EVENT_S})") == 0
    client.ask(f"procs.stop().get(timeout={EVENT_S})")
    assert len(spawn(client, count=1)) == 1


def test_who_needs_more_memory_is_ended_alone_and_the_kernel_has_counted_it(
    session: Session, client: Client
) -> None:
    spawn(client)
    error = client.fails(run(EXHAUST_MEMORY))
    assert error.is_a("SupervisionError")
    assert (error.fields["kind"], error.fields["code"], error.fields["rank"]) == ("out_of_memory", 9, 1)
    counter = rf"{session.group}/monarch-session-\w+/proc-\S+/memory\.events"
    assert re.fullmatch(rf"oom_kill in {counter} rose from 0 to \d", error.fields["reason"]), error.fields
    assert session.risen("memory.events", "oom_group_kill") == 1
    (told,) = client.ask("failures(1)")
    assert (told["kind"], told["rank"], told["mesh"]) == ("out_of_memory", 1, "limited")
    assert "killed by the kernel for lack of memory: oom_kill in" in session.why("limited:1")
    assert_unharmed(session, limited=1)


def test_a_process_is_ended_with_all_that_it_started(session: Session, client: Client) -> None:
    (_, pid) = spawn(client)
    error = client.fails(run(CHILD_EXHAUSTS_MEMORY))
    assert (error.fields["kind"], error.fields["pid"]) == ("out_of_memory", pid)
    assert session.risen("memory.events", "oom_group_kill") == 1
    assert_unharmed(session, limited=1)


def test_a_kill_after_that_of_a_child_has_a_cause_of_its_own(session: Session, client: Client) -> None:
    """The child was ended for lack of memory in the whole session; what ends the worker later is not that."""
    (_, pid) = spawn(client, "pids_max=1000")
    (session.group / "memory.max").write_text(str(600 << 20))
    client.ask(run(CHILD_EXHAUSTS_MEMORY))
    assert session.risen("memory.events", "oom_kill") == 1
    # The launcher hears of it as the kernel's queue gets to it; it has done more than that when it has started another.
    client.ask("more = this_host().spawn_procs({'gpus': 1}); more.initialized.get()", EVENT_S)
    client.ask(f"more.stop().get(timeout={EVENT_S})")
    number = client.begin(run("import threading; threading.Event().wait()"))
    os.kill(pid, signal.SIGKILL)
    error = client.error(number)
    assert (error.fields["kind"], error.fields["code"]) == ("signalled", 9), error.fields
    assert re.search(r"oom_kill in \S+ stayed 1: somebody sent SIGKILL", error.fields["reason"]), error.fields
    (session.group / "memory.max").write_text("max")
    assert_unharmed(session, limited=1)


def test_after_that_of_a_child_lack_of_memory_is_still_told(session: Session, client: Client) -> None:
    spawn(client, "pids_max=1000")
    (session.group / "memory.max").write_text(str(600 << 20))
    client.ask(run(CHILD_EXHAUSTS_MEMORY))
    prefer = "open('/proc/self/oom_score_adj', 'w').write('1000')\n"
    error = client.fails(run(prefer + EXHAUST_MEMORY))
    assert (error.fields["kind"], error.fields["code"]) == ("out_of_memory", 9), error.fields
    assert "rose from 1 to 2" in error.fields["reason"], error.fields


def test_a_fork_bomb_is_refused_and_hurts_nobody(session: Session, client: Client) -> None:
    (_, pid) = spawn(client)
    client.ask(run("import limit_faults; assert limit_faults.fork_bomb() >= 1"))
    (leaf,) = [leaf for leaf in session.leaves() if str(pid) in (leaf / "cgroup.procs").read_text().split()]
    assert (leaf / "pids.current").read_text().strip() == str(PIDS_MAX)
    assert (leaf / "pids.events").read_text().split()[1] != "0"
    # In it: no process and no thread more.
    refused = "import os, pytest\nwith pytest.raises(BlockingIOError): os.fork()\n"
    refused += "import threading\nwith pytest.raises(RuntimeError): threading.Thread(target=print).start()"
    client.ask(run(refused))
    assert client.ask("failures_so_far()") == []
    assert_unharmed(session, limited=2)


def test_a_fork_bomb_ends_with_its_process(session: Session, client: Client) -> None:
    (_, pid) = spawn(client)
    client.ask(run("import limit_faults; limit_faults.fork_bomb()"))
    (leaf,) = [leaf for leaf in session.leaves() if str(pid) in (leaf / "cgroup.procs").read_text().split()]
    bomb = [int(number) for number in (leaf / "cgroup.procs").read_text().split()]
    assert len(bomb) > 2
    client.ask(f"procs.stop().get(timeout={EVENT_S})")
    assert all(wait_exit(number, GONE_S) for number in bomb)
