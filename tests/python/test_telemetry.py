"""Meters and spans: by OpenTelemetry where it is installed, else without effect."""

from __future__ import annotations

from typing import Any

import pytest

EVERYTHING = """
import asyncio, sys
from monarch.actor import get_meter, span, traced

meter = get_meter()
meter.create_counter("steps", unit="1").add(2, {"epoch": 1})
meter.create_up_down_counter("waiting").add(-3)
meter.create_histogram("loss").record(0.5, attributes={"rank": 0})

@traced
def plain(x):
    return x + 1

@traced(name="other")
async def coroutine():
    "text"
    return 5

with span("outer"):
    print(plain(1), asyncio.run(coroutine()), coroutine.__doc__)
try:
    with span("broken"):
        raise ValueError
except ValueError:
    print("raised")
"""

SDK = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

reader, spans = InMemoryMetricReader(), InMemorySpanExporter()
metrics.set_meter_provider(MeterProvider([reader]))
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
"""

SHOW = """
for resource in reader.get_metrics_data().resource_metrics:
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            for point in metric.data.data_points:
                print(scope.scope.name, metric.name, getattr(point, "value", None) or point.sum, dict(point.attributes))
print([span.name for span in spans.get_finished_spans()])
"""


def test_metrics_and_spans_reach_opentelemetry(run_python: Any) -> None:
    done = run_python("-c", SDK + EVERYTHING + SHOW)
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines() == [
        "2 5 text",
        "raised",
        "monarch steps 2 {'epoch': '1'}",
        "monarch waiting -3 {}",
        "monarch loss 0.5 {'rank': '0'}",
        "['plain', 'other', 'outer', 'broken']",
    ]


def test_spans_carry_the_actor(run_python: Any) -> None:
    code = """
from monarch.actor import Actor, current_actor_name, endpoint, this_proc, traced

class Worker(Actor):
    @endpoint
    @traced
    def work(self):
        return current_actor_name()

name = this_proc().spawn("w", Worker).work.call_one().get()
print([dict(span.attributes) for span in spans.get_finished_spans()] == [{"actor": name}])
"""
    done = run_python("-c", SDK + code)
    assert (done.status, done.out, done.err) == (0, "True\n", "")


def test_without_opentelemetry_nothing_happens(run_python: Any) -> None:
    done = run_python("-c", "import sys; sys.modules['opentelemetry'] = None\n" + EVERYTHING)
    assert (done.status, done.out, done.err) == (0, "2 5 text\nraised\n", "")


def test_importing_does_not_load_opentelemetry(run_python: Any) -> None:
    done = run_python("-c", "import sys, monarch.actor; print('opentelemetry' in sys.modules)")
    assert (done.status, done.out) == (0, "False\n")


@pytest.mark.parametrize("kind", ["counter", "up_down_counter", "gauge"])
def test_observable_instruments_are_not_offered(kind: str) -> None:
    from monarch.actor import get_meter

    with pytest.raises(NotImplementedError, match="observable instruments are not offered"):
        getattr(get_meter(), f"create_observable_{kind}")("name", callbacks=[])
