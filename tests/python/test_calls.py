"""Calls: the ways to call, arguments and results, order."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest
from conftest import EVENT_S, Failures
from monarch.actor import (
    Accumulator,
    Actor,
    ActorError,
    ActorMesh,
    Channel,
    Endpoint,
    Future,
    NotAnEndpoint,
    SupervisionError,
    ValueMesh,
    as_endpoint,
    endpoint,
    send,
)
from sample_actors import Counter


@pytest.fixture
def counters(spawn_procs: Any) -> Any:
    return spawn_procs({"gpus": 3}).spawn("counters", Counter, 10)


def test_call_gives_a_value_for_each_member(counters: Any) -> None:
    answers = counters.add.call(5, twice=True).get()
    assert isinstance(answers, ValueMesh)
    assert answers.values() == [20, 20, 20]
    assert answers.sizes == {"gpus": 3}
    assert [(p.rank, dict(p), v) for p, v in answers][2] == (2, {"gpus": 2}, 20)


def test_call_one_needs_a_mesh_of_one(counters: Any) -> None:
    with pytest.raises(ValueError, match="call_one requires exactly 1 actor, but mesh has 3"):
        counters.add.call_one(1)
    assert counters.slice(gpus=1).add.call_one(1).get() == 11


def test_choose_asks_one(counters: Any) -> None:
    assert counters.add.choose(1).get() == 11
    assert sum(counters.get.call().get().values()) == 31


def test_stream_gives_one_future_for_each_member(counters: Any) -> None:
    futures = list(counters.add.stream(1))
    assert all(isinstance(future, Future) for future in futures)
    assert sorted(future.get() for future in futures) == [11, 11, 11]


def test_broadcast_answers_nothing_and_keeps_its_place(counters: Any) -> None:
    assert counters.add.broadcast(7) is None
    assert counters.get.call().get().values() == [17, 17, 17]


def test_calls_are_handled_in_the_order_of_sending(counters: Any) -> None:
    one = counters.slice(gpus=0)
    futures = []
    for i in range(200):
        if i % 3 == 0:
            one.add.broadcast(1)
        futures.append(one.add.call_one(1))
    values = [future.get() for future in futures]
    assert values == sorted(values)
    assert values[-1] == 10 + 200 + 67


def test_a_call_is_sent_even_if_nobody_looks_at_its_future(counters: Any) -> None:
    counters.add.call(1)
    assert counters.get.call().get().values() == [11, 11, 11]


def test_ranks_are_those_of_the_slice_that_was_called(counters: Any) -> None:
    part = counters.slice(gpus=slice(1, 3))
    answers = part.where.call().get()
    assert [(rank, point, size) for _, rank, point, size in answers.values()] == [
        (0, {"gpus": 0}, {"gpus": 2}),
        (1, {"gpus": 1}, {"gpus": 2}),
    ]
    assert len({pid for pid, *_ in answers.values()}) == 2


@pytest.mark.parametrize("args, kwargs", [((1, 2), {}), ((), {"amuont": 1}), ((1,), {"amount": 1})])
def test_wrong_arguments_are_refused_by_the_call(counters: Any, args: Any, kwargs: Any) -> None:
    with pytest.raises(TypeError):
        counters.add.call(*args, **kwargs)
    assert counters.get.call().get().values() == [10, 10, 10]


def test_wrong_constructor_arguments_are_refused_by_spawn(spawn_procs: Any) -> None:
    procs = spawn_procs()
    with pytest.raises(TypeError):
        procs.spawn("counter", Counter, 1, 2, 3)
    with pytest.raises(TypeError):
        procs.spawn("counter", Counter, wrong=1)


def test_a_class_that_is_no_actor_is_refused(spawn_procs: Any) -> None:
    with pytest.raises(ValueError, match="must subclass monarch.service.Actor"):
        spawn_procs().spawn("no", int)


class RefusesPickling:
    def __reduce__(self) -> Any:
        raise KeyError("not this one")


def test_an_argument_that_cannot_be_pickled_raises_its_own_exception(counters: Any) -> None:
    with pytest.raises(KeyError, match="not this one"):
        counters.echo.call(RefusesPickling())
    with pytest.raises(TypeError):
        counters.echo.call(threading.Lock())
    assert counters.get.call().get().values() == [10, 10, 10]


def refuse_loading() -> Any:
    raise OSError("cannot be loaded")


class RefusesLoading:
    def __reduce__(self) -> Any:
        return (refuse_loading, ())


def test_an_argument_that_cannot_be_loaded_is_the_callers_error(counters: Any) -> None:
    with pytest.raises(ActorError) as caught:
        counters.echo.call(RefusesLoading()).get()
    assert isinstance(caught.value.exception, OSError)
    assert counters.get.call().get().values() == [10, 10, 10]


def test_results_that_cannot_be_pickled_leave_the_actor_alive(counters: Any) -> None:
    with pytest.raises(ActorError):
        counters.unpicklable_result.call().get()
    assert counters.get.call().get().values() == [10, 10, 10]


def test_an_exception_reaches_the_caller_with_its_traceback(counters: Any) -> None:
    with pytest.raises(ActorError) as caught:
        counters.fail.call("bad step").get()
    error = caught.value
    assert isinstance(error.exception, ValueError)
    assert not isinstance(error, ValueError)
    assert error.message == "Actor call counters.fail failed."
    text = str(error)
    assert "Traceback of where the remote call failed (most recent call last):" in text
    assert "raise ValueError(text)" in text
    assert "ValueError: bad step" in text
    assert counters.get.call().get().values() == [10, 10, 10]


def test_chained_exceptions_keep_both_texts(counters: Any) -> None:
    with pytest.raises(ActorError) as caught:
        counters.chained.call().get()
    text = str(caught.value)
    assert "Inner exception" in text
    assert "Outer exception" in text
    assert "direct cause" in text


def test_the_exception_of_the_lowest_rank_wins(counters: Any) -> None:
    with pytest.raises(ActorError) as caught:
        counters.fail_on.call(1).get()
    assert str(caught.value.exception) == "rank 1 fails"


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 100_000, 5_000_000])
def test_bytes_of_any_size_come_back(counters: Any, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    assert counters.slice(gpus=0).echo.call_one(data).get() == data
    assert counters.echo.call(bytearray(data)).get().values() == [data] * 3


class HoldsBuffer:
    """Pickles its bytes out of band, as arrays do."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: int) -> Any:
        return (HoldsBuffer, (pickle.PickleBuffer(self.data),))


class Buffers(Actor):
    @endpoint
    def change(self, held: HoldsBuffer) -> tuple[int, bool]:
        view = memoryview(held.data)
        if not view.readonly:
            view[0] = 9
        return sum(view[:4]), view.readonly

    @endpoint
    def keep(self, held: HoldsBuffer) -> None:
        self.held = held

    @endpoint
    def kept(self) -> int:
        return sum(memoryview(self.held.data)[:4])


def test_large_buffers_arrive_writable_and_as_copies(spawn_procs: Any) -> None:
    buffers = spawn_procs({"gpus": 2}).spawn("buffers", Buffers)
    data = bytearray(b"\1" * 100_000)
    assert buffers.change.call(HoldsBuffer(data)).get().values() == [(12, False), (12, False)]
    assert buffers.slice(gpus=0).change.call_one(HoldsBuffer(data)).get() == (12, False)
    assert data[0] == 1


class StartsWithBuffer(Buffers):
    def __init__(self, held: HoldsBuffer) -> None:
        self.held = held


def test_arguments_are_as_they_were_at_the_call_also_if_it_waits_for_its_mesh(spawn_procs: Any) -> None:
    data = bytearray(b"\1" * 100_000)
    # Processes take longer to start than these lines take.
    buffers = spawn_procs().spawn("buffers", StartsWithBuffer, HoldsBuffer(data))
    first = buffers.kept.call_one()
    sums = buffers.change.call_one(HoldsBuffer(data))
    data[:] = b"\5" * len(data)
    assert first.get() == 4
    assert sums.get() == (12, False)


def test_a_received_buffer_stays_alive_with_its_holder(spawn_procs: Any) -> None:
    buffers = spawn_procs().spawn("buffers", Buffers)
    buffers.keep.call_one(HoldsBuffer(bytearray(b"\1" * 100_000))).get()
    for _ in range(50):
        buffers.change.call_one(HoldsBuffer(bytearray(b"\5" * 100_000))).get()
    assert buffers.kept.call_one().get() == 4


def test_closures_and_local_classes_travel_by_value(counters: Any) -> None:
    offset = 5

    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

    echoed = counters.slice(gpus=0).echo.call_one((lambda x: x + offset, Local(3))).get()
    assert echoed[0](1) == 6
    assert echoed[1].value == 3


def test_a_local_actor_class_can_be_spawned(spawn_procs: Any) -> None:
    class Local(Actor):
        @endpoint
        def double(self, value: int) -> int:
            return 2 * value

    assert spawn_procs().spawn("local", Local).double.call_one(4).get() == 8


def test_everything_of_an_actor_runs_on_one_thread(counters: Any) -> None:
    assert counters.same_thread.call().get().values() == [True] * 3


def test_threads_of_the_client_call_at_the_same_time(counters: Any) -> None:
    results: list[Any] = []

    def work() -> None:
        for _ in range(50):
            results.append(counters.echo.call(threading.get_ident()).get().values())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 200
    assert all(len(set(values)) == 1 for values in results)


def test_meshes_travel_and_are_references(counters: Any, spawn_procs: Any) -> None:
    copy = pickle.loads(pickle.dumps(counters))
    assert isinstance(copy, ActorMesh)
    assert copy.add.call(1).get().values() == [11, 11, 11]
    with pytest.raises(NotImplementedError, match="Cannot call stop on an ActorMeshRef"):
        copy.stop()
    with pytest.raises(NotImplementedError, match="Cannot call stop on an ActorMeshRef"):
        counters.slice(gpus=0).stop().get()


def test_what_is_no_endpoint_says_so(counters: Any) -> None:
    assert isinstance(counters.add, Endpoint)
    assert isinstance(counters.plain, NotAnEndpoint)
    assert isinstance(counters.LIMIT, NotAnEndpoint)
    with pytest.raises(RuntimeError, match="as_endpoint"):
        counters.plain(1)
    with pytest.raises(AttributeError):
        counters.nothing()


def test_calling_an_endpoint_as_a_method_says_how_to(counters: Any) -> None:
    with pytest.raises(TypeError, match=r"counters.add\(\) says not whom to call: use \.call\("):
        counters.add(1)
    with pytest.raises(TypeError, match=r"mesh\.add\.call"):
        Counter().add(1)


def test_as_endpoint_calls_plain_methods(counters: Any) -> None:
    assert as_endpoint(counters.plain).call(5).get().values() == [15, 15, 15]
    with pytest.raises(ValueError):
        as_endpoint(counters.add)


def test_accumulator_folds_answers(counters: Any) -> None:
    assert Accumulator(counters.add, 0, lambda a, b: a + b).accumulate(1).get() == 33


def test_send_lets_answers_go_to_a_port(counters: Any) -> None:
    port, receiver = Channel.open_ranked()
    send(counters.add, (1,), {}, port)
    got = sorted(receiver.recv().get(timeout=20) for _ in range(3))
    assert got == [(0, 11), (1, 11), (2, 11)]
    with pytest.raises(ValueError):
        send(counters.add, (1,), {}, port, selection="some")


def test_class_rules(spawn_procs: Any) -> None:
    class Mixed(Actor):
        @endpoint
        def one(self) -> None: ...

        @endpoint
        async def two(self) -> None: ...

    class Reserved(Actor):
        @endpoint
        def slice(self) -> None: ...  # type: ignore[override]

    class Cleanup(Actor):
        @endpoint
        def one(self) -> None: ...

        async def __cleanup__(self, exc: Any) -> None: ...

    procs = spawn_procs()
    with pytest.raises(ValueError, match="mixes both async and sync"):
        procs.spawn("x", Mixed)
    with pytest.raises(ValueError, match="slice"):
        procs.spawn("x", Reserved)
    with pytest.raises(ValueError, match="__cleanup__"):
        procs.spawn("x", Cleanup)


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class NoLoading(Exception):
    def __reduce__(self) -> Any:
        return (_leave, ())


class NoPickling:
    def __reduce__(self) -> Any:
        raise SystemExit(3)


class LeavesWhenLoaded:
    def __reduce__(self) -> Any:
        return (_leave, ())


def _leave() -> None:
    raise SystemExit("left while loading")


class Hostile(Actor):
    @endpoint
    def fail(self, error: type[Exception]) -> None:
        raise error("with a message")

    @endpoint
    def make(self, cls: type[Any]) -> Any:
        return cls()


@pytest.mark.parametrize("error", [NoText, NoLoading])
def test_exceptions_with_code_of_their_own(spawn_procs: Any, error: type[Exception]) -> None:
    mesh = spawn_procs().spawn("hostile", Hostile)
    for _ in range(2):  # The actor lives on.
        with pytest.raises(ActorError, match=error.__name__):
            mesh.fail.call_one(error).get(timeout=EVENT_S)


def test_a_result_that_leaves_when_it_is_pickled(spawn_procs: Any, failures: Failures) -> None:
    mesh = spawn_procs().spawn("hostile", Hostile)
    with pytest.raises(SupervisionError, match="SystemExit"):
        mesh.make.call_one(NoPickling).get(timeout=EVENT_S)
    failures.wait()


def test_a_result_that_leaves_when_it_is_loaded(spawn_procs: Any) -> None:
    future = spawn_procs().spawn("hostile", Hostile).make.call_one(LeavesWhenLoaded)
    for _ in range(2):  # The second look does not wait for what the first has taken.
        with pytest.raises(SystemExit):
            future.get(timeout=EVENT_S)


def test_the_name_of_a_mesh_is_a_string(spawn_procs: Any) -> None:
    procs = spawn_procs()
    for name in (None, 5, b"name"):
        with pytest.raises(TypeError, match="name of a mesh"):
            procs.spawn(name, Counter)
