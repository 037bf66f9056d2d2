"""What the decorators of endpoints look like to type checkers. Nothing imports it at run time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Literal, Protocol, TypeAlias, overload

from monarch._actor.endpoint import Endpoint, P, R
from monarch._actor.port import Port

Propagator: TypeAlias = Literal["cached", "inspect", "mocked"] | Callable[..., Any] | None


# mypy's strict mode finds no P for a method with **kwargs, which could have one by the name of `self`. Such methods meet
# the variants with `...`, which keep the type of the result.


class MakesEndpoint(Protocol):
    """endpoint(...): callers have the method's arguments without `self`, and what it returns or its coroutine gives."""

    @overload
    def __call__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Endpoint[P, R]: ...
    @overload
    def __call__(self, method: Callable[Concatenate[Any, P], R]) -> Endpoint[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-cannot-match]
        self, method: Callable[Concatenate[Any, ...], Coroutine[Any, Any, R]]
    ) -> Endpoint[..., R]: ...
    @overload
    def __call__(self, method: Callable[Concatenate[Any, ...], R]) -> Endpoint[..., R]: ...  # type: ignore[overload-cannot-match]


class MakesConcurrentEndpoint(Protocol):
    """concurrent_endpoint(...): as MakesEndpoint, for async methods alone."""

    @overload
    def __call__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Endpoint[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-cannot-match]
        self, method: Callable[Concatenate[Any, ...], Coroutine[Any, Any, R]]
    ) -> Endpoint[..., R]: ...


class MakesPortEndpoint(Protocol):
    """endpoint(explicit_response_port=True): callers do not give the port, and get what is sent to it."""

    @overload
    def __call__(self, method: Callable[Concatenate[Any, Port[R], P], Any]) -> Endpoint[P, R]: ...
    @overload
    def __call__(self, method: Callable[Concatenate[Any, Port[R], ...], Any]) -> Endpoint[..., R]: ...
