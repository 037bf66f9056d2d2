"""Each limit of base/limits.h is documented, and some test reaches it."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = [
    path
    for folder in ("base", "message", "daemon", "client", "tests")
    for pattern in ("*_test.cc", "test_*.py")
    for path in (ROOT / folder).rglob(pattern)
    if path.stem not in ("limits_test", "test_limits_table")
]
LIMITS = re.findall(r"^  int64_t (\w+) = ", (ROOT / "base/limits.h").read_text(), re.MULTILINE)


def test_there_are_limits_and_tests() -> None:
    assert len(LIMITS) > 20 and len(TESTS) > 100


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_documented(name: str) -> None:
    assert f"| `{name}` |" in (ROOT / "docs/limits.md").read_text()


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_reached_in_some_test(name: str) -> None:
    """Which is to say that the test names it: as the limit, the variable, or the option."""
    spelled = re.compile(rf"\b({name}|MONARCH_LIMIT_{name.upper()})\b|--{name.replace('_', '-')}\b")
    assert any(spelled.search(path.read_text()) for path in TESTS)
