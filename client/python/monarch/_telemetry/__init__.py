"""Metrics and spans by OpenTelemetry's API package where it is installed; else they cost and do nothing."""

from __future__ import annotations

from monarch._telemetry.instruments import Counter, Histogram, Meter, UpDownCounter, get_meter
from monarch._telemetry.spans import span, traced

__all__ = ["Counter", "Histogram", "Meter", "UpDownCounter", "get_meter", "span", "traced"]
