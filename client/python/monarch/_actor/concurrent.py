"""Endpoints whose bodies overlap."""

from __future__ import annotations

import functools
from typing import Any

from monarch._actor.endpoint import EndpointProperty, is_coroutine_function


class ConcurrentEndpointProperty(EndpointProperty):
    concurrent = True

    def __init__(self, method: Any, propagate: Any, explicit_response_port: bool, instrument: bool) -> None:
        super().__init__(method, propagate, True, instrument)
        self.takes_port = explicit_response_port


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
