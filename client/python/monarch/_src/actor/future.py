"""Alias: the same module as `monarch._compat.task_future`, since programs replace parts of it."""

from __future__ import annotations

import sys

from monarch._compat import task_future

sys.modules[__name__] = task_future
