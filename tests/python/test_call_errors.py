"""What the error of a call carries, and that every call is answered."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest
from conftest import EVENT_S, Failures
from monarch import _runtime
from monarch._actor.errors import send_error
from monarch.actor import (
    Actor,
    ActorError,
    ResourceExhausted,
    SupervisionError,
    concurrent_endpoint,
    current_rank,
    endpoint,
)
from monarch.config import configured


class Mixed(Actor):
    """Every member answers a call in its own way."""

    @endpoint
    def odd_ranks_fail(self) -> Any:
        rank = current_rank().rank
        if rank % 2:
            raise ValueError(f"rank {rank} fails")
        return {"rank": rank}

    @endpoint
    def first_leaves(self) -> int:
        if current_rank().rank == 0:
            raise SystemExit(3)
        return current_rank().rank

    @endpoint
    def relay(self, other: Any) -> Any:
        return other.odd_ranks_fail.call().get()

    @endpoint
    def raise_it(self, make: Any) -> None:
        raise make()

    @endpoint
    def give(self, make: Any) -> Any:
        return make()


class Concurrent(Actor):
    @concurrent_endpoint
    async def leave(self) -> None:
        raise SystemExit(3)

    @endpoint
    async def ping(self) -> int:
        return 1


@pytest.fixture
def mixed(spawn_procs: Any) -> Any:
    return spawn_procs({"gpus": 4}).spawn("mixed", Mixed)


def test_the_error_of_the_lowest_rank_carries_all_errors_and_all_values(mixed: Any) -> None:
    with pytest.raises(ActorError, match="rank 1 fails") as caught:
        mixed.odd_ranks_fail.call().get(timeout=EVENT_S)
    error = caught.value
    assert sorted(error.failures) == [1, 3]
    assert error.failures[1] is error
    assert "rank 3 fails" in str(error.failures[3])
    assert dict(error.values) == {0: {"rank": 0}, 2: {"rank": 2}}


def test_ranks_of_failures_are_those_of_the_mesh_that_was_called(mixed: Any) -> None:
    with pytest.raises(ActorError, match="rank 1 fails") as caught:
        mixed.slice(gpus=slice(1, 3)).odd_ranks_fail.call().get(timeout=EVENT_S)
    assert sorted(caught.value.failures) == [1]
    assert list(caught.value.values) == [0]


def test_a_dead_members_error_carries_what_came_before_it(mixed: Any, failures: Failures) -> None:
    with pytest.raises(SupervisionError) as caught:
        mixed.first_leaves.call().get(timeout=EVENT_S)
    error = caught.value
    assert error.failures[0] is error
    assert all(value == rank for rank, value in error.values.items())
    failures.wait()


def test_an_error_of_one_carries_nothing_more(mixed: Any) -> None:
    with pytest.raises(ActorError) as caught:
        mixed.slice(gpus=slice(0, 2)).slice(gpus=1).raise_it.call_one(_local).get(timeout=EVENT_S)
    assert dict(caught.value.failures) == {}
    assert dict(caught.value.values) == {}


def test_an_error_travels_with_all_errors_and_without_values(mixed: Any, spawn_procs: Any) -> None:
    relay = spawn_procs().spawn("relay", Mixed)
    with pytest.raises(ActorError) as caught:
        relay.relay.call_one(mixed).get(timeout=EVENT_S)
    inner = caught.value.exception
    assert isinstance(inner, ActorError)
    assert inner.failures[1] is inner
    assert "rank 3 fails" in str(inner.failures[3])
    assert dict(inner.values) == {}


def test_supervision_errors_survive_pickling() -> None:
    error = SupervisionError("gone", "mesh.method()")
    error.failures = {2: error}
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.endpoint) == (str(error), "mesh.method()")
    assert copy.failures[2] is copy


def test_the_endpoint_of_a_supervision_error_can_be_set() -> None:
    error = SupervisionError("gone")
    assert str(error) == "gone"
    error.endpoint = "mesh.method()"
    assert str(error) == "Endpoint call mesh.method() failed, gone"
    assert isinstance(error, RuntimeError)


def test_an_actor_error_is_not_caught_as_the_original(mixed: Any) -> None:
    error = mixed.slice(gpus=1).raise_it.call_one(lambda: ValueError("x")).exception(timeout=EVENT_S)
    assert isinstance(error, ActorError)
    assert not isinstance(error, ValueError)
    assert isinstance(error.exception, ValueError)
    assert error.message == "Actor call mixed.raise_it failed."
    assert str(error) == (
        f"{error.message}\n Traceback of where the remote call failed (most recent call last):\n"
        + error.exception_formatted.removeprefix("Traceback (most recent call last):\n")
    )


def test_a_base_exception_of_a_concurrent_endpoint_goes_to_the_caller(
    spawn_procs: Any, failures: Failures
) -> None:
    mesh = spawn_procs().spawn("concurrent", Concurrent)
    with pytest.raises(ActorError, match=r"Actor call concurrent\.leave failed with BaseException\."):
        mesh.leave.call_one().get(timeout=EVENT_S)
    assert mesh.ping.call_one().get(timeout=EVENT_S) == 1
    assert failures.seen == []


# --- a reply always comes ---


class NeedsKeyword(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


class StrRaises(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class StrLeaves(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


class ReduceRaises(Exception):
    def __reduce__(self) -> Any:
        raise ValueError("stays here")


class ReduceLeaves(Exception):
    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


class LoadRaisesUnprintable(Exception):
    def __reduce__(self) -> Any:
        return (_raise_unprintable, ())


def _raise_unprintable() -> None:
    raise StrRaises


def _local() -> Exception:
    class Local(Exception):
        pass

    return Local("local")


def _grouped() -> Exception:
    cause = NeedsKeyword(code=3)
    error = RuntimeError("with a cause")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "make",
    [
        lambda: NeedsKeyword(code=7),
        StrRaises,
        LoadRaisesUnprintable,
        _local,
        _grouped,
        lambda: UnicodeError("\ud800"),
        lambda: ValueError("x" * 5_000_000),
    ],
)
def test_an_exception_of_any_kind_reaches_its_caller(mixed: Any, make: Any, failures: Failures) -> None:
    one = mixed.slice(gpus=0)
    error = one.raise_it.call_one(make).exception(timeout=EVENT_S)
    assert isinstance(error, ActorError)
    assert str(error).startswith("Actor call mixed.raise_it failed.")
    assert one.odd_ranks_fail.call_one().get(timeout=EVENT_S) == {"rank": 0}
    assert failures.seen == []


@pytest.mark.parametrize("make", [StrLeaves, ReduceRaises, ReduceLeaves])
def test_an_exception_that_cannot_be_sent_fails_the_actor_and_is_told(
    mixed: Any, make: Any, failures: Failures
) -> None:
    error = mixed.slice(gpus=0).raise_it.call_one(make).exception(timeout=EVENT_S)
    assert isinstance(error, (SupervisionError, ActorError))
    assert make.__name__ in str(error) or "SystemExit" in str(error) or "KeyboardInterrupt" in str(error)


class LeavesWhenPickled:
    def __reduce__(self) -> Any:
        raise SystemExit(1)


@pytest.mark.parametrize("make", [threading.Lock, lambda: ReduceRaises(), lambda: iter(x for x in ())])
def test_a_result_that_cannot_be_pickled_is_the_callers_error(
    mixed: Any, make: Any, failures: Failures
) -> None:
    one = mixed.slice(gpus=0)
    assert isinstance(one.give.call_one(make).exception(timeout=EVENT_S), ActorError)
    assert one.odd_ranks_fail.call_one().get(timeout=EVENT_S) == {"rank": 0}
    assert failures.seen == []


# --- limits ---


def test_a_limit_is_named_by_a_typed_error() -> None:
    status = _runtime.StatusError("no room")
    status.code = "RESOURCE_EXHAUSTED"
    status.message = (
        "no room at a within send_wait_ms=30000: its mailbox (mailbox_bytes_max=67108864) is full"
    )
    error = send_error(status)
    assert isinstance(error, ResourceExhausted)
    assert error.limits == {"send_wait_ms": 30000, "mailbox_bytes_max": 67108864}
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.limits) == (str(error), error.limits)


def test_a_message_that_is_too_large_raises_and_names_the_limit(mixed: Any) -> None:
    class Huge:
        """Pickles as a buffer that has no memory behind it."""

        def __reduce_ex__(self, protocol: Any) -> Any:
            import mmap

            return (len, (pickle.PickleBuffer(mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | 0x4000)),))

    with configured(codec_max_frame_length=1 << 41):
        later = mixed.give.call(Huge()).exception(timeout=EVENT_S)  # sent when the mesh is ready
        assert isinstance(later, SupervisionError)
        assert "segment_bytes_max=" in str(later)
        mixed.give.call(dict).get(timeout=EVENT_S)
        with pytest.raises(ResourceExhausted) as caught:
            mixed.give.call(Huge())
    assert caught.value.limits["segment_bytes_max"] > 0
    assert len(mixed.slice(gpus=0).give.call_one(dict).get(timeout=EVENT_S)) == 0
