"""Selections over the dimensions of a mesh, parsed and shown; meshes are selected from by `slice()`."""

from __future__ import annotations

import re
from collections.abc import Callable

# A part of a selection, given what is selected in the dimensions after it.
_Part = Callable[[str], str]

_TOKEN = re.compile(r"[0-9]+|[*?:,()&|]")


def _nested(name: str) -> _Part:
    return lambda rest: f"{name}({rest})"


def _both(name: str, a: _Part, b: _Part) -> _Part:
    return lambda rest: f"{name}({a(rest)}, {b(rest)})"


def _then(a: _Part, b: _Part) -> _Part:
    return lambda rest: a(b(rest))


class _Parser:
    """In the order of binding: `|`, `&`, `,` (the next dimension), then `*`, `?`, index, start:end:step, (...)."""

    def __init__(self, text: str) -> None:
        self._text = text
        compact = "".join(text.split())
        self._tokens = _TOKEN.findall(compact)
        self._at = 0
        if "".join(self._tokens) != compact:
            raise self._error()

    def _error(self) -> ValueError:
        return ValueError(f"not a selection: {self._text!r}; an example is '(*, 0:4) & (1, ?)'")

    def _take(self, token: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at] == token
        self._at += found
        return found

    def _number(self) -> int | None:
        if self._at < len(self._tokens) and self._tokens[self._at].isdigit():
            self._at += 1
            return int(self._tokens[self._at - 1])
        return None

    def parse(self) -> _Part:
        part = self._union()
        if self._at != len(self._tokens):
            raise self._error()
        return part

    def _union(self) -> _Part:
        part = self._intersection()
        while self._take("|"):
            part = _both("Union", part, self._intersection())
        return part

    def _intersection(self) -> _Part:
        part = self._chain()
        while self._take("&"):
            part = _both("Intersection", part, self._chain())
        return part

    def _chain(self) -> _Part:
        part = self._dimension()
        while self._take(","):
            part = _then(part, self._dimension())
        return part

    def _dimension(self) -> _Part:
        if self._take("*"):
            return _nested("All")
        if self._take("?"):
            return _nested("Any")
        if self._take("("):
            part = self._union()
            if not self._take(")"):
                raise self._error()
            return part
        return self._range()

    def _range(self) -> _Part:
        start = self._number()
        end: int | None = None
        step = 1
        if self._take(":"):
            end = self._number()
            if self._take(":"):
                found = self._number()
                if found is None:
                    raise self._error()
                step = found
        elif start is None:
            raise self._error()
        else:
            end = start + 1
        shown_end = "None" if end is None else f"Some({end})"
        return lambda rest: f"Range(Range({start or 0}, {shown_end}, {step}), {rest})"


class Selection:
    """Which members of a mesh, for each dimension. Opaque."""

    __slots__ = ("_shown",)

    def __init__(self, part: _Part) -> None:
        self._shown = part("True")

    @classmethod
    def from_string(cls, s: str) -> Selection:
        """Parses text such as "(*, 0:4) & (1, ?)"; ValueError for any other."""
        return cls(_Parser(s).parse())

    @classmethod
    def all(cls) -> Selection:
        return cls(_nested("All"))

    @classmethod
    def any(cls) -> Selection:
        """One member, whichever."""
        return cls(_nested("Any"))

    def __repr__(self) -> str:
        return self._shown
