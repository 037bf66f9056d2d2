"""The parameters of an endpoint's method, as its callers see them."""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any


class Signature:
    """Checks arguments as a call of the method would, faster than inspect does for the usual ones."""

    __slots__ = ("_full", "_method", "_names", "_required", "_skip")

    def __init__(self, method: Any, skip: int) -> None:
        code: Any = getattr(method, "__code__", None)
        self._method = method
        self._skip = skip
        self._full: Any = None
        self._names: tuple[str, ...] | None = None
        self._required = 0
        plain = isinstance(method, FunctionType) and not hasattr(method, "__wrapped__")
        # No *args, no **kwargs, no keyword-only and no positional-only arguments.
        if not plain or code.co_flags & 0x0C or code.co_kwonlyargcount or code.co_posonlyargcount:
            return
        self._names = code.co_varnames[skip : code.co_argcount]
        self._required = len(self._names) - len(method.__defaults__ or ())

    def takes(self, name: str) -> bool:
        """Whether a keyword argument of that name is, or may be, the method's own."""
        if self._names is not None:
            return name in self._names
        try:
            parameters = self._signature().parameters
        except (TypeError, ValueError):
            return True
        return name in parameters or any(each.kind == each.VAR_KEYWORD for each in parameters.values())

    def has(self, name: str) -> bool:
        """Whether the method has a parameter of that name."""
        if self._names is not None:
            return name in self._names
        try:
            return name in self._signature().parameters
        except (TypeError, ValueError):
            return False

    def _signature(self) -> Any:
        if self._full is None:
            import inspect

            self._full = inspect.signature(self._method)
        return self._full

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        names = self._names
        if names is not None:
            given = len(args)
            if not kwargs:
                if self._required <= given <= len(names):
                    return
            elif given <= len(names):
                rest = names[given:]
                required = names[given : self._required]
                if all(name in rest for name in kwargs) and all(name in kwargs for name in required):
                    return
        self._signature().bind(*((None,) * self._skip), *args, **kwargs)


@functools.lru_cache(maxsize=4096)
def signature_of(method: Any, skip: int) -> Signature:
    return Signature(method, skip)
