"""Other classes in the place of actors' own, for tests."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from monarch._actor.actor import Actor
    from monarch._actor.context import Instance

F = TypeVar("F", bound=Callable[..., Any])

# By the class object, for a name may stand for several.
_actor_registry: dict[type[Actor], type[Actor]] = {}


def get_actor_class(cls: type[Actor]) -> type[Actor]:
    """The class that spawn takes for `cls` in this process."""
    return _actor_registry.get(cls, cls)


def get_actor_mock_registry_state() -> dict[type[Actor], type[Actor]]:
    """A copy of what is replaced by what in this process."""
    return dict(_actor_registry)


def set_actor_mock_registry_state(state: dict[type[Actor], type[Actor]]) -> None:
    """Adds to what is replaced in this process."""
    _actor_registry.update(state)


def seen_by(instance: Instance) -> dict[type[Actor], type[Actor]]:
    """What is replaced when this instance spawns."""
    return {**instance.mocks, **_actor_registry} if instance.mocks else _actor_registry


class patch_actor:  # noqa: N801  like unittest.mock.patch
    """Makes spawn create `mock` in the place of `original`: a context manager, plain or async, and a decorator.

    It holds in this process, and in actors that are spawned meanwhile, for what they spawn in their turn. Patches of
    one class may be nested. Not for several threads at once.
    """

    def __init__(self, original: type[Actor], mock: type[Actor]) -> None:
        self.original = original
        self.mock = mock
        self._before: list[type[Actor] | None] = []

    def __enter__(self) -> type[Actor]:
        self._before.append(_actor_registry.get(self.original))
        _actor_registry[self.original] = self.mock
        return self.mock

    def __exit__(self, *exc: object) -> None:
        before = self._before.pop()
        if before is None:
            _actor_registry.pop(self.original, None)
        else:
            _actor_registry[self.original] = before

    async def __aenter__(self) -> type[Actor]:
        return self.__enter__()

    async def __aexit__(self, *exc: object) -> None:
        self.__exit__(*exc)

    def __call__(self, function: F) -> F:
        from monarch._actor.endpoint import is_coroutine_function

        decorated: Any
        if is_coroutine_function(function):

            @functools.wraps(function)
            async def decorated(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

        else:

            @functools.wraps(function)
            def decorated(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return function(*args, **kwargs)

        found: F = decorated
        return found
