"""What counts and measures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

Attributes = Mapping[str, Any] | None


class _Nothing:
    """An instrument where OpenTelemetry is not installed."""

    def add(self, amount: float, attributes: Attributes = None) -> None:
        pass

    record = add


@functools.cache
def _api_meter() -> Any:
    """OpenTelemetry's meter, or None. Loads its package."""
    try:
        from opentelemetry import metrics
    except ImportError:
        return None
    return metrics.get_meter("monarch")


def _inner(kind: str, name: str, unit: str, description: str) -> Any:
    meter = _api_meter()
    return _Nothing() if meter is None else getattr(meter, kind)(name, unit=unit, description=description)


def _as_text(attributes: Attributes) -> dict[str, str] | None:
    # Backends take only some types, and drop the others.
    return {str(key): str(value) for key, value in attributes.items()} if attributes else None


class _Instrument:
    _kind: str

    def __init__(self, name: str, unit: str = "", description: str = "") -> None:
        self.name = name
        self.inner = _inner(self._kind, name, unit, description)


class Counter(_Instrument):
    """A sum that only grows."""

    _kind = "create_counter"

    def add(self, amount: float, attributes: Attributes = None, context: Any = None) -> None:
        """Adds `amount`, which is not negative. Attribute values are sent as text. On any thread."""
        self.inner.add(amount, attributes=_as_text(attributes))


class UpDownCounter(_Instrument):
    """A sum that grows and shrinks."""

    _kind = "create_up_down_counter"

    def add(self, amount: float, attributes: Attributes = None, context: Any = None) -> None:
        """Adds `amount`. Attribute values are sent as text. On any thread."""
        self.inner.add(amount, attributes=_as_text(attributes))


class Histogram(_Instrument):
    """Values, of which the distribution is of interest."""

    _kind = "create_histogram"

    def record(self, amount: float, attributes: Attributes = None, context: Any = None) -> None:
        """Records one value. Attribute values are sent as text. On any thread."""
        self.inner.record(amount, attributes=_as_text(attributes))


class Meter:
    """Makes instruments."""

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Counter:
        return Counter(name, unit, description)

    def create_up_down_counter(self, name: str, unit: str = "", description: str = "") -> UpDownCounter:
        return UpDownCounter(name, unit, description)

    def create_histogram(self, name: str, unit: str = "", description: str = "", **_: Any) -> Histogram:
        return Histogram(name, unit, description)

    def create_gauge(self, name: str, unit: str = "", description: str = "") -> NoReturn:
        raise _not_offered("gauges")

    def create_observable_counter(
        self,
        name: str,
        callbacks: Sequence[Callable[..., Any]] | None = None,
        unit: str = "",
        description: str = "",
    ) -> NoReturn:
        raise _not_offered("observable instruments")

    create_observable_up_down_counter = create_observable_counter
    create_observable_gauge = create_observable_counter


def _not_offered(what: str) -> NotImplementedError:
    return NotImplementedError(
        f"{what} are not offered by monarch's meter; use a counter, an up-down counter or a histogram, or a meter of "
        "opentelemetry.metrics"
    )


def get_meter() -> Meter:
    """The meter of this process."""
    return Meter()
