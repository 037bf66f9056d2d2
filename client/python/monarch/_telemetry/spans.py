"""What took how long, in which actor."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

from monarch._actor.context import current
from monarch._actor.endpoint import is_coroutine_function

F = TypeVar("F", bound=Callable[..., Any])


@functools.cache
def _tracer() -> Any:
    """OpenTelemetry's tracer, or None. Loads its package."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer("monarch")


def span(name: str) -> contextlib.AbstractContextManager[Any]:
    """A context manager for one span, which carries the current actor's address as attribute `actor`."""
    tracer = _tracer()
    if tracer is None:
        return contextlib.nullcontext()
    found = current.get()
    attributes = {} if found is None else {"actor": str(found.actor_instance.actor_id)}
    started: contextlib.AbstractContextManager[Any] = tracer.start_as_current_span(
        name, attributes=attributes
    )
    return started


@overload
def traced(fn: F) -> F: ...
@overload
def traced(*, name: str) -> Callable[[F], F]: ...
def traced(fn: Any = None, *, name: str | None = None) -> Any:
    """Makes each call of a function, sync or async, a span; by the function's name unless another is given."""
    if fn is None:
        return functools.partial(traced, name=name)
    title = fn.__name__ if name is None else name
    if is_coroutine_function(fn):

        @functools.wraps(fn)
        async def traced_coroutine(*args: Any, **kwargs: Any) -> Any:
            with span(title):
                return await fn(*args, **kwargs)

        return traced_coroutine

    @functools.wraps(fn)
    def traced_function(*args: Any, **kwargs: Any) -> Any:
        with span(title):
            return fn(*args, **kwargs)

    return traced_function
