"""Classes and functions by value. Loads cloudpickle, so it is imported where something needs it."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as implementation

from monarch._actor import source_lines, torch_storage
from monarch._actor.pickling import Reference

_HIDDEN = "<dynamic-code>"
_VERSION = sys.version_info[:2]


def _reduce_code(code: CodeType) -> Any:
    # cloudpickle hides file names to make its output the same everywhere; tracebacks are worth more.
    _, arguments = implementation._code_reduce(code)
    shown = tuple(code.co_filename if argument == _HIDDEN else argument for argument in arguments)
    lines = source_lines.lines_of(code)
    return _make_code, (_VERSION, code.co_name, code.co_filename, lines, shown)


def _make_code(
    version: tuple[int, int],
    name: str,
    filename: str,
    lines: source_lines.Lines | None,
    arguments: tuple[Any, ...],
) -> CodeType:
    if version != _VERSION:
        ours, theirs = (".".join(map(str, pair)) for pair in (_VERSION, version))
        raise TypeError(
            f"function {name!r} was sent by value by Python {theirs}, and this process is Python {ours}, which cannot "
            "run its code. Put it into a module that both can import, or use one version of Python everywhere"
        )
    if lines is not None:
        source_lines.keep(filename, lines)
    return CodeType(*arguments)


class CloudPickler(cloudpickle.Pickler):
    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child({CodeType: _reduce_code})
    refers = False  # whether a mesh or a port was met

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) in torch_storage.types:
            return torch_storage.reduce(obj)
        if isinstance(obj, Reference):
            self.refers = True
        return super().reducer_override(obj)
