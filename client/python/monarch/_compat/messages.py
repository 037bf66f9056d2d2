"""Hand-made messages, as far as ports take them."""

from __future__ import annotations

from typing import Any, NamedTuple


class MethodSpecifier:
    """Which method a message is for."""

    class Init(NamedTuple):
        """The first message of an actor."""

    class ReturnsResponse(NamedTuple):
        name: str

    class ExplicitPort(NamedTuple):
        name: str


class PythonMessageKind:
    """What a message is."""

    class CallMethod(NamedTuple):
        name: Any
        response_port: Any

    class Result(NamedTuple):
        rank: int | None

    class Exception(NamedTuple):
        rank: int | None

    class Uninit(NamedTuple):
        """Nothing yet."""


class PythonMessage:
    """A kind, and bytes."""

    def __init__(self, kind: Any, message: Any, refs: Any = ()) -> None:
        self.kind = kind
        self.message = message
        self.refs = refs
