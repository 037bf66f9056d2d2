"""See tests/support/live.py; and the table of the fault matrix, at the end of a run that has cells of it."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))

from live import live  # noqa: E402, F401
from matrix import (  # noqa: E402, F401
    outcome,
    pytest_runtest_makereport,
    pytest_terminal_summary,
)
from neighbours import neighbours  # noqa: E402, F401
