"""Classes and functions by value. Loads cloudpickle, so it is imported where something needs it."""

from __future__ import annotations

from types import CodeType
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as implementation

_HIDDEN = "<dynamic-code>"


def _reduce_code(code: CodeType) -> Any:
    # cloudpickle hides file names to make its output the same everywhere; tracebacks are worth more.
    function, arguments = implementation._code_reduce(code)
    return function, tuple(code.co_filename if argument == _HIDDEN else argument for argument in arguments)


class CloudPickler(cloudpickle.Pickler):
    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child({CodeType: _reduce_code})
