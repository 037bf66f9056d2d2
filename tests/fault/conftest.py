"""See tests/support/live.py; and the table of the fault matrix, at the end of a run that has cells of it."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))

from live import live  # noqa: E402, F401
from matrix import CELL_FAILED, outcome, write_table  # noqa: E402, F401
from neighbours import neighbours  # noqa: E402, F401


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[Any]:
    report = yield
    if report.failed:
        item.stash[CELL_FAILED] = True
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    write_table(terminalreporter, config)
