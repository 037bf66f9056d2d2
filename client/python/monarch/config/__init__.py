"""What a program can set. docs/configuration.md lists the keys.

A key's value is, highest first: the environment variable's, `configure`'s, the configuration file's (named by
MONARCH_CONFIG), that of the program that started this process, the default. Environment and file are read once, when
this package is first used. Processes are spawned with the values that hold then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from monarch._config.encoding import Encoding
from monarch._config.layers import layers, shown
from monarch._config.parametrize import parametrize_config, parametrize_config_pointwise

__all__ = [
    "Encoding",
    "clear_runtime_config",
    "configure",
    "configured",
    "get_global_config",
    "get_runtime_config",
    "parametrize_config",
    "parametrize_config_pointwise",
]


def configure(**values: Any) -> None:
    """Sets keys for this process and those it spawns from now on: all of them, or none and raises.

    Lengths of time are texts with units ("90s", "1h 30m", "500ms"). Raises ValueError for an unknown key or transport,
    TypeError for a value of the wrong type or a text that is no length of time. A key that changes nothing here is
    accepted, with a warning, once. An environment variable for the same key stays stronger.
    """
    layers.configure(values, 1)


def get_global_config() -> dict[str, Any]:
    """The value that holds for every key."""
    return shown(layers.effective)


def get_runtime_config() -> dict[str, Any]:
    """What `configure` has set, and only that."""
    return shown(layers.runtime())


def clear_runtime_config() -> None:
    """Takes back all that `configure` has set."""
    layers.replace_runtime({})


@contextlib.contextmanager
def configured(**values: Any) -> Iterator[dict[str, Any]]:
    """Sets keys inside a `with` block, for all threads; gives what holds for every key. At its end, what `configure`
    had set before holds again."""
    before = layers.runtime()
    layers.configure(values, 2)
    try:
        yield get_global_config()
    finally:
        layers.replace_runtime(before)
