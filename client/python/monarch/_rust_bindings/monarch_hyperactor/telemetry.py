"""Alias: names that live elsewhere."""

from __future__ import annotations

from monarch._telemetry import Counter as PyCounter
from monarch._telemetry import Histogram as PyHistogram
from monarch._telemetry import UpDownCounter as PyUpDownCounter

__all__ = ["PyCounter", "PyHistogram", "PyUpDownCounter"]
