"""Where a key's value comes from. Highest first: the environment, `configure`, the configuration file, the program
that started this process, the default."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from monarch._config.keys import KEYS, Key

# Names the configuration file: lines of `key = value`, values as in the environment.
FILE_VARIABLE = "MONARCH_CONFIG"


class Layers:
    """The values of one process. Thread-safe; reading `effective` needs no lock."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._environment = _from_environment(environment)
        self._runtime: dict[str, Any] = {}
        self._file = _from_file(environment.get(FILE_VARIABLE, ""))
        self._inherited: dict[str, Any] = {}
        self._default = {name: key.default_value() for name, key in KEYS.items()}
        self._told: set[str] = set()
        # The value that holds, for every key, as kept. Replaced as a whole.
        self.effective: dict[str, Any] = {}
        self._merge()

    def _merge(self) -> None:
        self.effective = {
            **self._default,
            **self._inherited,
            **self._file,
            **self._runtime,
            **self._environment,
        }

    def configure(self, values: Mapping[str, Any], frames: int) -> None:
        """Sets all of the values, or none and raises. Warnings point to the caller that many frames up."""
        checked = {}
        for name, value in values.items():
            checked[name] = _key(name).kind.check(name, value)
        self.warn_of_idle(checked, frames + 3)
        with self._lock:
            self._runtime.update(checked)
            self._merge()

    def replace_runtime(self, kept: Mapping[str, Any]) -> None:
        """The runtime layer as `runtime()` gave it."""
        with self._lock:
            self._runtime = dict(kept)
            self._merge()

    def runtime(self) -> dict[str, Any]:
        return dict(self._runtime)

    def inherit(self, texts: Mapping[str, str]) -> None:
        """What another process' `bequest` gave. Keys that this version does not know are left out."""
        kept = {name: KEYS[name].kind.parse(name, text) for name, text in texts.items() if name in KEYS}
        with self._lock:
            self._inherited = kept
            self._merge()

    def bequest(self) -> dict[str, str]:
        """What a process that is started from here inherits."""
        return {
            name: key.kind.text(self.effective[name])
            for name, key in KEYS.items()
            if not key.local and self.effective[name] != self._default[name]
        }

    def is_set(self, name: str) -> bool:
        return bool(self.effective[name] != self._default[name])

    def seconds(self, name: str) -> float:
        """The value of a key that is a length of time."""
        return float(self.effective[name] / 10**9)

    def warn_of_idle(self, names: Iterable[str] | None = None, frames: int = 1) -> None:
        """Says, once for each key, that setting it changes nothing. Without names: of the environment and the file."""
        for name in names if names is not None else (*self._environment, *self._file):
            key = KEYS[name]
            if not key.acts and name not in self._told:
                self._told.add(name)
                warnings.warn(
                    f"configuration key {name!r} is accepted but changes nothing here: {key.what}",
                    stacklevel=frames,
                )


def shown(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Values as they are read back."""
    return {name: KEYS[name].kind.show(value) for name, value in kept.items()}


def _key(name: str) -> Key:
    found = KEYS.get(name)
    if found is None:
        raise ValueError(f"invalid configuration key {name!r}; docs/configuration.md lists the keys")
    return found


def _parse(key: Key, text: str, source: str, into: dict[str, Any]) -> None:
    try:
        into[key.name] = key.kind.parse(key.name, text)
    except (TypeError, ValueError) as error:
        warnings.warn(f"{source} is ignored: {error}", stacklevel=2)


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key in KEYS.values():
        text = environment.get(key.env)
        if text is not None:
            _parse(key, text, f"the environment variable {key.env}", out)
    return out


def _from_file(path: str) -> dict[str, Any]:
    if not path:
        return {}
    out: dict[str, Any] = {}
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        warnings.warn(f"{FILE_VARIABLE} names a file that cannot be read: {error}", stacklevel=2)
        return {}
    for number, line in enumerate(lines, 1):
        name, separator, text = (part.strip() for part in line.partition("="))
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        source = f"line {number} of {path}"
        if not separator or name not in KEYS:
            warnings.warn(f"{source} is ignored: invalid configuration key {name!r}", stacklevel=2)
            continue
        _parse(KEYS[name], text, source, out)
    return out


layers = Layers(os.environ)
