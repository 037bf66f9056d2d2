"""Why something could not be pickled or loaded: which part of it, and what to do. Used after a failure only."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

_DEPTH_MAX = 12
_PARTS_MAX = 256

_NEW_TEXT = (TypeError, AttributeError, pickle.PicklingError)
_PROCESS_BOUND = (
    "What belongs to one process (locks, threads, sockets, open files, futures, loops) cannot be sent: make it in the "
    "actor that uses it, or leave it out by __getstate__"
)
_NOT_THERE = (
    "Install it there, or start the processes where it is on the path; what is no installed module can be sent by value "
    "with cloudpickle.register_pickle_by_value(module)"
)


def _with_text(error: BaseException, text: str) -> BaseException:
    """An error of the same type that says more, if it is one of Python's own; else the error itself, with a note."""
    if isinstance(error, ImportError) and type(error) in (ImportError, ModuleNotFoundError):
        return type(error)(text, name=error.name, path=error.path)
    if type(error) in _NEW_TEXT:
        return type(error)(text)
    if hasattr(error, "add_note"):
        error.add_note(text)
    return error


def cannot_pickle(
    error: BaseException, what: str, obj: Any, dumps: Callable[[Any], Any], of: str = ""
) -> BaseException:
    """The error to raise for `obj`, which is called `what` in its text."""
    path, part, reason = _find(obj, dumps, error)
    text = f"{what}{path}{of} cannot be pickled"
    if path:
        text += f" (it is a {type(part).__qualname__})"
    return _with_text(error, f"{text}: {summary_of(reason)}. {_PROCESS_BOUND}")


def cannot_pickle_call(
    error: BaseException, function: str, args: Any, kwargs: Any, dumps: Callable[[Any], Any]
) -> BaseException:
    """The same for the arguments of a call; `error` itself if each of them can be pickled alone."""
    of = f" of {function}" if function else ""
    for name, value in [*enumerate(args), *kwargs.items()]:
        if _failure(value, dumps) is not None:
            return cannot_pickle(error, f"argument {name!r}", value, dumps, of)
    return error


def cannot_load(error: BaseException, what: str) -> BaseException:
    """The error to raise where `what` arrived and could not be loaded."""
    if isinstance(error, (ImportError, AttributeError)):
        return _with_text(
            error, f"{what} cannot be loaded in this process: {summary_of(error)}. {_NOT_THERE}"
        )
    return _with_text(error, f"{what} cannot be loaded in this process: {summary_of(error)}")


def summary_of(error: BaseException) -> str:
    """Type and text; the text is code of the user's and may raise."""
    try:
        text = str(error)
    except BaseException:
        text = "its __str__ raised"
    return f"{type(error).__qualname__}: {text}"


def _failure(obj: Any, dumps: Callable[[Any], Any]) -> BaseException | None:
    try:
        dumps(obj)
    except Exception as error:
        return error
    return None


def _find(obj: Any, dumps: Callable[[Any], Any], error: BaseException) -> tuple[str, Any, BaseException]:
    """The innermost part that fails alone: the path to it, itself, and why."""
    path = ""
    for _ in range(_DEPTH_MAX):
        for step, part in _parts(obj):
            inner = _failure(part, dumps)
            if inner is not None:
                path, obj, error = path + step, part, inner
                break
        else:
            break
    return path, obj, error


def _has_own_way(cls: type) -> bool:
    """Whether instances are pickled by code of the class's, whose error says more than a field's."""
    names = ("__reduce__", "__reduce_ex__", "__getstate__")
    return any(getattr(cls, name, None) is not getattr(object, name, None) for name in names)


def _parts(obj: Any) -> Iterator[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    if isinstance(obj, dict):
        found = [(f"[{key!r}]", value) for key, value in list(obj.items())[:_PARTS_MAX]]
    elif isinstance(obj, (list, tuple)):
        found = [(f"[{index}]", value) for index, value in enumerate(obj[:_PARTS_MAX])]
    elif isinstance(obj, FunctionType):
        for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True):
            try:
                found.append((f"'s variable {name!r}", cell.cell_contents))
            except ValueError:  # not set yet
                continue
        used = [name for name in obj.__code__.co_names if name in obj.__globals__]
        found += [(f"'s global {name!r}", obj.__globals__[name]) for name in used]
    elif not isinstance(obj, type) and not _has_own_way(type(obj)):
        fields = getattr(obj, "__dict__", None)
        if isinstance(fields, dict):
            found = [(f".{name}", value) for name, value in list(fields.items())[:_PARTS_MAX]]
    yield from found
