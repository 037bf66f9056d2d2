"""See tests/support/live.py."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "support"))

from live import live  # noqa: E402, F401
