"""Values that cross between Python and C++."""

from typing import Any

import pytest
from monarch import _runtime


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_a_value_nests_sixty_four_deep() -> None:
    assert _runtime.decode_value(_runtime.encode_value(nested(64))) == nested(64)


def test_a_value_that_nests_deeper_is_refused() -> None:
    with pytest.raises(ValueError, match="nested"):
        _runtime.encode_value(nested(65))


def test_a_value_in_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested too deep, or in itself"):
        _runtime.encode_value(endless)
    table: dict[str, Any] = {}
    table["self"] = table
    with pytest.raises(ValueError, match="nested too deep, or in itself"):
        _runtime.encode_value(table)
