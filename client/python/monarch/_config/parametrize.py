"""Decorators that run a pytest test under several configurations."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

_ARGUMENT = "_monarch_config"

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def parametrize_config(**values: Iterable[Any]) -> Decorator:
    """Runs a test once for each combination of the values of all keys. ValueError without a key."""
    if not values:
        raise ValueError("parametrize_config needs at least one configuration key")
    ordered = [list(choices) for choices in values.values()]
    return _parametrize(list(values), list(itertools.product(*ordered)))


def parametrize_config_pointwise(**values: Sequence[Any]) -> Decorator:
    """Runs a test once with the first value of each key, once with the second, and so on.

    ValueError without a key, and for keys with different numbers of values.
    """
    if not values:
        raise ValueError("parametrize_config_pointwise needs at least one configuration key")
    sizes = {key: len(choices) for key, choices in values.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"every key needs the same number of values, but there are {sizes}")
    return _parametrize(list(values), list(zip(*values.values(), strict=True)))


def _parametrize(keys: list[str], points: list[tuple[Any, ...]]) -> Decorator:
    import inspect

    import pytest

    from monarch.config import configured

    settings = [dict(zip(keys, point, strict=True)) for point in points]
    ids = ["-".join(f"{key}={value}" for key, value in setting.items()) for setting in settings]

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(test):

            async def run_async(*args: Any, **kwargs: Any) -> Any:
                with configured(**kwargs.pop(_ARGUMENT)):
                    return await test(*args, **kwargs)

            run: Callable[..., Any] = run_async
        else:

            def run_sync(*args: Any, **kwargs: Any) -> Any:
                with configured(**kwargs.pop(_ARGUMENT)):
                    return test(*args, **kwargs)

            run = run_sync
        functools.update_wrapper(run, test)
        # pytest finds fixtures and parameters by the signature.
        signature = inspect.signature(test)
        added = inspect.Parameter(_ARGUMENT, inspect.Parameter.KEYWORD_ONLY)
        run.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*signature.parameters.values(), added]
        )
        marked: Callable[..., Any] = pytest.mark.parametrize(_ARGUMENT, settings, ids=ids)(run)
        return marked

    return decorate
