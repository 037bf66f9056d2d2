"""patch_actor: another class in the place of an actor's own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from monarch._actor import mock
from monarch._actor.mock import get_actor_class, patch_actor
from monarch.actor import Actor, endpoint, this_proc


class Real(Actor):
    @endpoint
    def kind(self) -> str:
        return "real"


class Mocked(Actor):
    def __init__(self, answer: str = "mocked") -> None:
        self.answer = answer

    @endpoint
    def kind(self) -> str:
        return self.answer


class Spawner(Actor):
    @endpoint
    def kind_of_inner(self) -> str:
        return this_proc().spawn("inner", Real).kind.call_one().get()


@pytest.fixture(autouse=True)
def nothing_patched() -> Iterator[None]:
    yield
    assert mock.get_actor_mock_registry_state() == {}


def test_spawn_takes_the_mock_while_patched(spawn_procs: Any) -> None:
    procs = spawn_procs({"gpus": 1})
    with patch_actor(Real, Mocked) as replaced:
        assert replaced is Mocked
        patched = procs.spawn("patched", Real)
    after = procs.spawn("after", Real)
    assert [patched.kind.call_one().get(), after.kind.call_one().get()] == ["mocked", "real"]


def test_arguments_are_checked_against_the_mock(spawn_procs: Any) -> None:
    procs = spawn_procs({"gpus": 1})
    with patch_actor(Real, Mocked):
        assert procs.spawn("mocked", Real, answer="given").kind.call_one().get() == "given"
        with pytest.raises(TypeError):
            procs.spawn("mocked", Real, no_such=1)


def test_actors_spawned_meanwhile_see_the_patch(spawn_procs: Any) -> None:
    procs = spawn_procs({"gpus": 1})
    with patch_actor(Real, Mocked):
        during = procs.spawn("during", Spawner)
    after = procs.spawn("after", Spawner)
    # During the whole of its life, and no other actor of its process does.
    assert during.kind_of_inner.call_one().get() == "mocked"
    assert after.kind_of_inner.call_one().get() == "real"


def test_patches_nest() -> None:
    class Other(Mocked):
        pass

    with patch_actor(Real, Mocked):
        with patch_actor(Real, Other):
            assert get_actor_class(Real) is Other
        assert get_actor_class(Real) is Mocked
    with pytest.raises(ZeroDivisionError), patch_actor(Real, Mocked):
        raise ZeroDivisionError
    assert get_actor_class(Real) is Real


def test_decorates_functions_and_coroutines() -> None:
    patch = patch_actor(Real, Mocked)

    @patch
    def plain(depth: int) -> Any:
        return plain(depth - 1) if depth else get_actor_class(Real)

    @patch
    async def coroutine() -> Any:
        return get_actor_class(Real)

    async def context_manager() -> Any:
        async with patch:
            return get_actor_class(Real)

    assert plain(2) is Mocked
    assert asyncio.run(coroutine()) is Mocked
    assert asyncio.run(context_manager()) is Mocked
