"""Call cycles: actors that wait for each other are found, one call of theirs fails, and all else is left alone."""

from __future__ import annotations

import os
import pickle
import random
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import EVENT_S, Failures
from monarch.actor import (
    Actor,
    ActorError,
    CallTimeoutError,
    DeadlockError,
    Port,
    concurrent_endpoint,
    current_rank,
    endpoint,
)
from monarch.job import ProcessJob


def cycle_of(error: ActorError) -> tuple[str, ...]:
    """Of the innermost error: each call on the way wraps it."""
    inner: BaseException | None = error
    while isinstance(inner, ActorError):
        inner = inner.exception
    assert isinstance(inner, DeadlockError), error
    return inner.cycle


class Node(Actor):
    """Makes the calls that it is told to make, one after the other, and waits for each."""

    def __init__(self) -> None:
        self.kept: Any = None

    @endpoint
    def ping(self) -> str:
        return "pong"

    @endpoint
    def call(self, *path: Any) -> str:
        """Calls the first of the path, which calls the next."""
        return path[0].call.call_one(*path[1:]).get() if path else "end"

    @endpoint
    def caught(self, *path: Any) -> Any:
        try:
            return path[0].call.call_one(*path[1:]).get()
        except DeadlockError as error:
            return error.cycle, error.endpoint

    @endpoint
    def through(self, other: Any, *path: Any) -> Any:
        return other.caught.call_one(*path).get()

    @endpoint
    def call_all(self, mesh: Any) -> Any:
        try:
            return mesh.ping.call().get().values()
        except DeadlockError as error:
            return error.cycle, sorted(error.failures)

    @endpoint
    def call_limited(self, seconds: float, other: Any) -> str:
        return other.ping.with_timeout(seconds).call_one().get()

    @endpoint
    def call_for(self, seconds: float, *path: Any) -> str:
        try:
            return path[0].call.call_one(*path[1:]).get(timeout=seconds)
        except TimeoutError:
            return "late"

    @endpoint
    def first_of(self, mesh: Any, *path: Any) -> str:
        """Waits for any of the answers of a mesh, whose members call the path."""
        return next(mesh.call.stream(*path)).get()

    @endpoint
    def every_of(self, mesh: Any, *path: Any) -> list[str]:
        outcomes = []
        for future in mesh.call.stream(*path):
            error = future.exception()
            outcomes.append(type(error).__name__ if error is not None else future.get())
        return sorted(outcomes)

    @endpoint
    def keep(self, *path: Any) -> None:
        self.kept = path[0].await_kept.call_one(*path[1:])

    @endpoint
    def await_kept(self, *path: Any) -> str:
        """For the answer of an earlier call; with a path, lets another do that."""
        return path[0].await_kept.call_one().get() if path else self.kept.get()

    @endpoint
    def hold(self, entered: str, gate: str) -> str:
        Path(entered).write_text("x")
        return Path(gate).read_text()

    @endpoint
    def run(self, plan: Any) -> list[Any]:
        """Calls according to a tree of calls; what each of them came to."""
        outcomes: list[Any] = []
        for node, inner in plan:
            try:
                outcomes.append(node.run.call_one(inner).get())
            except DeadlockError:
                outcomes.append("deadlock")
        return outcomes


@pytest.fixture
def nodes(spawn_procs: Any) -> Any:
    """Three actors, each in a process of its own."""
    return [spawn_procs({"gpus": 1}).spawn(name, Node) for name in "abc"]


@pytest.fixture
def gate(tmp_path: Path) -> tuple[str, str]:
    """Two pipes: a handler has begun, it may end."""
    for name in ("entered", "gate"):
        os.mkfifo(tmp_path / name)
    return str(tmp_path / "entered"), str(tmp_path / "gate")


def found_elsewhere(procs: Any) -> None:
    """A deadlock in the same process takes its full course; waits that began before were looked at by then."""
    for _ in range(2):
        probe = procs.spawn("probe", Node)
        assert probe.caught.call_one(probe).get(timeout=EVENT_S)[0] == ("probe.caught", "probe.call")


def test_a_call_to_oneself_raises(nodes: Any) -> None:
    a = nodes[0]
    cycle, name = a.caught.call_one(a).get(timeout=EVENT_S)
    assert cycle == ("a.caught", "a.call")
    assert name == "a.call()"
    assert a.ping.call_one().get(timeout=EVENT_S) == "pong"


def test_two_actors_that_call_each_other(nodes: Any) -> None:
    a, b, _ = nodes
    with pytest.raises(ActorError) as raised:
        a.call.call_one(b, a).get(timeout=EVENT_S)
    assert cycle_of(raised.value) == ("a.call", "b.call", "a.call")
    assert "a.call() cannot be answered: each of these waits for the next: a.call -> b.call -> a.call" in str(
        raised.value
    )


def test_three_actors_in_three_processes(nodes: Any) -> None:
    a, b, c = nodes
    with pytest.raises(ActorError) as raised:
        a.call.call_one(b, c, a).get(timeout=EVENT_S)
    assert cycle_of(raised.value) == ("a.call", "b.call", "c.call", "a.call")


def test_actors_of_one_process(spawn_procs: Any) -> None:
    procs = spawn_procs({"gpus": 1})
    a, b, c = (procs.spawn(name, Node) for name in "abc")
    with pytest.raises(ActorError) as raised:
        c.call.call_one(a, b, a).get(timeout=EVENT_S)
    assert cycle_of(raised.value) == ("a.call", "b.call", "a.call")


def test_actors_on_two_hosts(failures: Failures) -> None:
    job = ProcessJob({"hosts": 2})
    try:
        nodes = job.state(cached_path=None).hosts.spawn_procs({"gpus": 1}).spawn("n", Node)
        a, b = nodes.slice(hosts=0), nodes.slice(hosts=1)
        with pytest.raises(ActorError) as raised:
            a.call.call_one(b, a).get(timeout=EVENT_S)
    finally:
        job.kill()
    first, second = (f"n{{'hosts': {host}/2, 'gpus': 0/1}}.call" for host in (0, 1))
    assert cycle_of(raised.value) == (first, second, first)


def test_a_cycle_behind_others_that_wait_for_it(nodes: Any) -> None:
    a, b, c = nodes
    waiting = [c.call.call_one(a) for _ in range(3)]
    with pytest.raises(ActorError) as raised:
        c.call.call_one(a, b, a).get(timeout=EVENT_S)
    assert cycle_of(raised.value) == ("a.call", "b.call", "a.call")
    assert [future.get(timeout=EVENT_S) for future in waiting] == ["end"] * 3


def test_one_call_fails_and_the_others_go_on(nodes: Any) -> None:
    a, b, _ = nodes
    cycle, name = a.through.call_one(b, a).get(timeout=EVENT_S)
    assert cycle == ("a.through", "b.caught", "a.call")
    assert name == "a.call()"


def test_a_mesh_with_the_caller_in_it(spawn_procs: Any) -> None:
    mesh = spawn_procs({"gpus": 3}).spawn("m", Node)
    cycle, failed = mesh.slice(gpus=1).call_all.call_one(mesh).get(timeout=EVENT_S)
    assert cycle == ("m{'gpus': 1/3}.call_all", "m{'gpus': 1/3}.ping")
    assert failed == [1]


def test_two_cycles_at_once(nodes: Any) -> None:
    a, b, c = nodes
    futures = [a.call.call_one(b, a), b.call.call_one(c, b), c.call.call_one(a, c)]
    for future in futures:
        with pytest.raises(ActorError) as raised:
            future.get(timeout=EVENT_S)
        cycle = cycle_of(raised.value)
        assert cycle[0] == cycle[-1]
    for node in nodes:
        assert node.ping.call_one().get(timeout=EVENT_S) == "pong"


def test_calls_that_all_have_begun(nodes: Any) -> None:
    a, b, _ = nodes
    a.keep.call_one(b, a).get(timeout=EVENT_S)
    with pytest.raises(ActorError) as raised:
        b.ping.call_one().get(timeout=EVENT_S)
        a.await_kept.call_one().get(timeout=EVENT_S)
    assert set(cycle_of(raised.value)) == {"a.await_kept", "b.await_kept"}


def test_the_error_can_be_pickled() -> None:
    error = DeadlockError(("a.f", "a.g"), "a.g()")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.cycle, copy.endpoint, str(copy)) == (error.cycle, error.endpoint, str(error))


def test_a_wait_with_a_limit_is_no_deadlock(nodes: Any) -> None:
    a, b, _ = nodes
    # b waits for a without a limit, a for b with one.
    assert a.call_for.call_one(0.3, b, a).get(timeout=EVENT_S) == "late"
    assert b.ping.call_one().get(timeout=EVENT_S) == "pong"


def test_a_call_with_a_limit_is_no_deadlock(nodes: Any) -> None:
    node, _, _ = nodes
    with pytest.raises(ActorError) as caught:
        node.call_limited.call_one(0.3, node).get(timeout=EVENT_S)
    assert isinstance(caught.value.exception, CallTimeoutError)


def test_waiting_behind_a_slow_handler_is_no_deadlock(spawn_procs: Any, gate: Any) -> None:
    procs = spawn_procs({"gpus": 1})
    slow, a, b = (procs.spawn(name, Node) for name in ("slow", "a", "b"))
    held = slow.hold.call_one(*gate)
    Path(gate[0]).read_text()
    waiting = [a.call.call_one(b, slow), b.call.call_one(slow), a.call.call_one(slow)]
    found_elsewhere(procs)
    Path(gate[1]).write_text("open")
    assert held.get(timeout=EVENT_S) == "open"
    assert [future.get(timeout=EVENT_S) for future in waiting] == ["end"] * 3


class Mixed(Actor):
    """Of its members only the first calls anybody."""

    @endpoint
    def call(self, *path: Any) -> str:
        return path[0].call.call_one().get() if current_rank().rank == 0 else "free"


def test_one_answer_of_several_is_enough(nodes: Any, spawn_procs: Any) -> None:
    a = nodes[0]
    mixed = spawn_procs({"gpus": 2}).spawn("mixed", Mixed)
    # The first member waits for the caller, the other answers; and then the caller answers, too.
    assert a.first_of.call_one(mixed, a).get(timeout=EVENT_S) == "free"
    assert mixed.call.call(nodes[1]).get(timeout=EVENT_S).values() == ["end", "free"]
    # Here the caller wants the first one's answer as well.
    assert a.every_of.call_one(mixed, a).get(timeout=EVENT_S) == ["ActorError", "free"]


class Handing(Actor):
    """Answers from another thread, while its own waits for the caller."""

    @endpoint(explicit_response_port=True)
    def call(self, port: Port[str], caller: Any, gate: str) -> None:
        thread = threading.Thread(target=lambda: port.send(Path(gate).read_text()))
        thread.start()
        caller.ping.call_one().get()
        thread.join()


def test_a_port_that_was_handed_out_may_answer(nodes: Any, spawn_procs: Any, gate: Any) -> None:
    a = nodes[0]
    procs = spawn_procs({"gpus": 1})
    future = a.call.call_one(procs.spawn("handing", Handing), a, gate[1])
    found_elsewhere(procs)
    Path(gate[1]).write_text("by hand")
    assert future.get(timeout=EVENT_S) == "by hand"


class Blocking(Actor):
    """Async endpoints that block their loop all the same."""

    @endpoint
    async def call(self, *path: Any) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return path[0].call.call_one(*path[1:]).get() if path else "end"

    @concurrent_endpoint
    async def overlap(self, *path: Any) -> str:
        return await path[0].overlap.call_one(*path[1:]) if path else "end"


def test_an_async_endpoint_that_blocks(nodes: Any, spawn_procs: Any) -> None:
    a = nodes[0]
    blocking = spawn_procs({"gpus": 1}).spawn("blocking", Blocking)
    for first, second in ((a, blocking), (blocking, a)):
        with pytest.raises(ActorError) as raised:
            first.call.call_one(second, first).get(timeout=EVENT_S)
        assert set(cycle_of(raised.value)) == {"a.call", "blocking.call"}


def test_concurrent_endpoints_may_call_in_circles(spawn_procs: Any) -> None:
    a, b = (spawn_procs({"gpus": 1}).spawn(name, Blocking) for name in "ab")
    assert a.overlap.call_one(b, a, b, a).get(timeout=EVENT_S) == "end"


class Starting(Actor):
    """Calls its spawner while it is being made."""

    def __init__(self, spawner: Any) -> None:
        self.cycle: Any = None
        try:
            spawner.ping.call_one().get()
        except DeadlockError as error:
            self.cycle = error.cycle

    @endpoint
    def get(self) -> Any:
        return self.cycle


class Spawner(Node):
    @endpoint
    def spawn(self, procs: Any, me: Any) -> Any:
        try:
            return procs.spawn("starting", Starting, me).get.call_one().get()
        except DeadlockError as error:
            return error.cycle


def test_an_init_that_waits(spawn_procs: Any) -> None:
    spawner = spawn_procs({"gpus": 1}).spawn("spawner", Spawner)
    cycle = spawner.spawn.call_one(spawn_procs({"gpus": 1}), spawner).get(timeout=EVENT_S)
    assert len(cycle) == 3
    assert (cycle[0], cycle[-1]) in (("spawner.spawn", "spawner.ping"), ("starting.__init__", "starting.get"))


def random_plan(nodes: Any, at: int, depth: int, forward: bool, draw: random.Random) -> list[Any]:
    """A tree of calls; with `forward` only to later nodes, so that no two can wait for each other."""
    choices = range(at + 1, len(nodes)) if forward else range(len(nodes))
    if depth == 0 or not choices:
        return []
    picked = [draw.choice(choices) for _ in range(draw.randint(0, 2))]
    return [(nodes[i], random_plan(nodes, i, depth - 1, forward, draw)) for i in picked]


def deadlocks_in(outcome: Any) -> int:
    return 1 if outcome == "deadlock" else sum(deadlocks_in(inner) for inner in outcome)


@pytest.mark.parametrize("forward", [True, False], ids=["no_circles", "circles"])
def test_random_programs_end(spawn_procs: Any, forward: bool) -> None:
    draw = random.Random(7)
    nodes = [
        procs.spawn(f"n{i}", Node) for procs in (spawn_procs({"gpus": 1}) for _ in range(2)) for i in range(3)
    ]
    found = 0
    for _ in range(10):
        starts = [draw.randrange(len(nodes)) for _ in range(6)]
        plans = [(i, random_plan(nodes, i, 4, forward, draw)) for i in starts]
        futures = [nodes[i].run.call_one(plan) for i, plan in plans]
        found += sum(deadlocks_in(future.get(timeout=EVENT_S)) for future in futures)
    assert (found > 0) is not forward
