"""The types of configuration values: what `configure` takes, what is kept, what is read back."""

from __future__ import annotations

from typing import Any

from monarch._config.duration import format_duration, parse_duration
from monarch._config.encoding import Encoding
from monarch._config.transport import BindSpec


class Kind:
    """One type of value. `check` raises TypeError or ValueError with a text that begins with the key."""

    name = ""

    def check(self, key: str, value: Any) -> Any:
        """What is kept for a value given in Python."""
        raise NotImplementedError

    def parse(self, key: str, text: str) -> Any:
        """What is kept for a value of the environment, of a file, or of the program that started this process."""
        return self.check(key, text)

    def show(self, kept: Any) -> Any:
        """What is read back in Python; `check` takes it."""
        return kept

    def text(self, kept: Any) -> str:
        """`parse` takes it."""
        return str(kept)

    def _wrong(self, key: str, value: Any) -> TypeError:
        return TypeError(f"configuration key {key!r} takes {self.name}, not {value!r}")


class _Bool(Kind):
    name = "a bool"

    def check(self, key: str, value: Any) -> Any:
        if not isinstance(value, bool):
            raise self._wrong(key, value)
        return value

    def parse(self, key: str, text: str) -> Any:
        value = {"1": True, "true": True, "0": False, "false": False}.get(text.lower())
        if value is None:
            raise self._wrong(key, text)
        return value


class _Int(Kind):
    name = "an int of at least 0"

    def check(self, key: str, value: Any) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(key, value)
        if value < 0:
            raise ValueError(f"configuration key {key!r} takes {self.name}, not {value}")
        return value

    def parse(self, key: str, text: str) -> Any:
        try:
            return self.check(key, int(text))
        except ValueError:
            raise self._wrong(key, text) from None


class _Float(Kind):
    name = "a float"

    def check(self, key: str, value: Any) -> Any:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self._wrong(key, value)
        return float(value)

    def parse(self, key: str, text: str) -> Any:
        try:
            return float(text)
        except ValueError:
            raise self._wrong(key, text) from None


class _Text(Kind):
    name = "a str"

    def check(self, key: str, value: Any) -> Any:
        if not isinstance(value, str):
            raise self._wrong(key, value)
        return value


class _Duration(Kind):
    name = 'a str with units, such as "90s", "1h 30m" or "500ms"'

    def check(self, key: str, value: Any) -> Any:
        if not isinstance(value, str):
            raise self._wrong(key, value)
        try:
            return parse_duration(value)
        except ValueError:
            raise TypeError(f"Invalid duration format: {self._wrong(key, value)}") from None

    def show(self, kept: Any) -> Any:
        return format_duration(kept)

    def text(self, kept: Any) -> str:
        return format_duration(kept)


class _Optional(Kind):
    """Also None, as text the empty one."""

    def __init__(self, inner: Kind) -> None:
        self._inner = inner
        self.name = f"{inner.name}, or None"

    def check(self, key: str, value: Any) -> Any:
        return None if value is None else self._inner.check(key, value)

    def parse(self, key: str, text: str) -> Any:
        return None if text == "" else self._inner.parse(key, text)

    def show(self, kept: Any) -> Any:
        return None if kept is None else self._inner.show(kept)

    def text(self, kept: Any) -> str:
        return "" if kept is None else self._inner.text(kept)


class _Transport(Kind):
    name = "a ChannelTransport, the name of one, or a URL"

    def check(self, key: str, value: Any) -> Any:
        try:
            return BindSpec(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"configuration key {key!r}: {error}") from None


class _Encoding(Kind):
    name = "a monarch.config.Encoding"

    def check(self, key: str, value: Any) -> Any:
        if not isinstance(value, Encoding):
            raise self._wrong(key, value)
        return value

    def parse(self, key: str, text: str) -> Any:
        try:
            return Encoding(text)
        except ValueError:
            raise self._wrong(key, text) from None

    def text(self, kept: Any) -> str:
        return str(kept.value)


BOOL = _Bool()
INT = _Int()
FLOAT = _Float()
TEXT = _Text()
DURATION = _Duration()
TRANSPORT = _Transport()
ENCODING = _Encoding()
OPTIONAL_INT = _Optional(INT)
OPTIONAL_DURATION = _Optional(DURATION)
