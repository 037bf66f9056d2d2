"""Lengths of time as people write them: "90s", "1h 30m", "500ms". Inside, a whole number of nanoseconds."""

from __future__ import annotations

import re

_SECOND = 10**9
_DAY = 86_400 * _SECOND
_MONTH = 2_630_016 * _SECOND  # 30.44 days
_YEAR = 31_557_600 * _SECOND  # 365.25 days

_UNITS = {
    1: "nanos nsec ns",
    10**3: "micros usec us µs",
    10**6: "millis msec ms",
    _SECOND: "seconds second secs sec s",
    60 * _SECOND: "minutes minute mins min m",
    3600 * _SECOND: "hours hour hrs hr h",
    _DAY: "days day d",
    7 * _DAY: "weeks week wk w",
    _MONTH: "months month M",
    _YEAR: "years year yrs yr y",
}
_NANOS = {name: nanos for nanos, names in _UNITS.items() for name in names.split()}
_ITEM = re.compile(r"\s*(\d+)\s*([a-zA-Zµ]+)\s*", re.ASCII)

# Largest first; what has a plural is a word.
_SHOWN = (
    (_YEAR, "year", "years"),
    (_MONTH, "month", "months"),
    (_DAY, "day", "days"),
    (3600 * _SECOND, "h", "h"),
    (60 * _SECOND, "m", "m"),
    (_SECOND, "s", "s"),
    (10**6, "ms", "ms"),
    (10**3, "us", "us"),
    (1, "ns", "ns"),
)


def parse_duration(text: str) -> int:
    """Nanoseconds. ValueError for what is no duration."""
    if text.strip() == "0":
        return 0
    total, at = 0, 0
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None or item[2] not in _NANOS:
            raise ValueError(text)
        total += int(item[1]) * _NANOS[item[2]]
        at = item.end()
    if at == 0:
        raise ValueError(text)
    return total


def format_duration(nanos: int) -> str:
    """The one way a length is shown: "5m", "1m 30s"."""
    parts = []
    for unit, one, many in _SHOWN:
        count, nanos = divmod(nanos, unit)
        if count:
            parts.append(f"{count}{one if count == 1 else many}")
    return " ".join(parts) or "0s"
