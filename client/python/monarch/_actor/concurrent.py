"""Endpoints whose bodies overlap."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, overload

from monarch._actor.endpoint import EndpointProperty, P, R, is_coroutine_function

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Concatenate, Literal

    from monarch._actor.endpoint import Endpoint
    from monarch._actor.endpoint_types import MakesConcurrentEndpoint, MakesPortEndpoint, Propagator
    from monarch._actor.port import Port


class ConcurrentEndpointProperty(EndpointProperty):
    concurrent = True

    def __init__(self, method: Any, propagate: Any, explicit_response_port: bool, instrument: bool) -> None:
        super().__init__(method, propagate, True, instrument)
        self.takes_port = explicit_response_port


@overload
def concurrent_endpoint(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
    *,
    propagate: Propagator = ...,
    explicit_response_port: Literal[False] = ...,
    instrument: bool = ...,
) -> Endpoint[P, R]: ...
@overload
def concurrent_endpoint(  # type: ignore[overload-cannot-match]
    method: Callable[Concatenate[Any, ...], Coroutine[Any, Any, R]],
    *,
    propagate: Propagator = ...,
    explicit_response_port: Literal[False] = ...,
    instrument: bool = ...,
) -> Endpoint[..., R]: ...
@overload
def concurrent_endpoint(
    method: Callable[Concatenate[Any, Port[R], P], Coroutine[Any, Any, Any]],
    *,
    propagate: Propagator = ...,
    explicit_response_port: Literal[True],
    instrument: bool = ...,
) -> Endpoint[P, R]: ...
@overload
def concurrent_endpoint(
    *, propagate: Propagator = ..., explicit_response_port: Literal[False] = ..., instrument: bool = ...
) -> MakesConcurrentEndpoint: ...
@overload
def concurrent_endpoint(
    *, propagate: Propagator = ..., explicit_response_port: Literal[True], instrument: bool = ...
) -> MakesPortEndpoint: ...
def concurrent_endpoint(
    method: Any = None,
    *,
    propagate: Any = None,
    explicit_response_port: bool = False,
    instrument: bool = True,
) -> Any:
    """As `endpoint`, for async methods: each call runs as a task, and the actor takes the next message at once.

    Calls from one sender start in the order of their sending, each up to its first await.
    """
    if method is None:
        return functools.partial(
            concurrent_endpoint,
            propagate=propagate,
            explicit_response_port=explicit_response_port,
            instrument=instrument,
        )
    if isinstance(method, EndpointProperty):
        raise ValueError("concurrent_endpoint does not wrap @endpoint; use it in its place")
    if not is_coroutine_function(method):
        raise ValueError("concurrent_endpoint can only wrap async endpoints")
    return ConcurrentEndpointProperty(method, propagate, explicit_response_port, instrument)
