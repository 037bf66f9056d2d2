"""A call of 64 bytes, from Python and from C++, beside a raw Unix-socket ping-pong of 64 bytes, in the same placement.

Prints the median time of one `call_one(...).get()`, its ratio to the limit, and for each side the voluntary context
switches per call. Aims: Python at most 4 times the limit and at most 2 switches on each side; C++ at most 2.5 times.
"""

from __future__ import annotations

import os
import time

import measure
from monarch.actor import Actor, endpoint, this_host

AIM = 4.0
AIM_NATIVE = 2.5
PAYLOAD = b"x" * 64


class Echo(Actor):
    @endpoint
    def echo(self, data: bytes) -> bytes:
        return data

    @endpoint
    def pid(self) -> int:
        return os.getpid()


def p50_us(echo: Echo, calls: int) -> float:
    samples = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        echo.echo.call_one(PAYLOAD).get()
        samples.append((time.perf_counter_ns() - start) / 1000)
    return measure.percentile(samples, 0.5)


def switches_per_call(echo: Echo, pid: int, calls: int) -> tuple[float, float]:
    before = measure.voluntary_switches(os.getpid()), measure.voluntary_switches(pid)
    for _ in range(calls):
        echo.echo.call_one(PAYLOAD).get()
    after = measure.voluntary_switches(os.getpid()), measure.voluntary_switches(pid)
    return (after[0] - before[0]) / calls, (after[1] - before[1]) / calls


def main() -> int:
    quick = os.environ.get("MONARCH_BENCH_SMOKE") == "1"
    calls, rounds = (500, 2) if quick else (3000, 5)
    procs = this_host().spawn_procs({"gpus": 1})
    echo = procs.spawn("echo", Echo)
    callee = echo.pid.call_one().get()
    p50_us(echo, 500)  # warm-up
    cpus = sorted(os.sched_getaffinity(0))
    placements = [("one core", cpus[0], cpus[0])]
    if len(cpus) > 1:
        placements.append(("two cores", cpus[0], cpus[1]))
    for name, caller_cpu, callee_cpu in placements:
        measure.pin(os.getpid(), {caller_cpu})
        measure.pin(callee, {callee_cpu})
        result = measure.interleave(
            lambda: p50_us(echo, calls),
            lambda a=caller_cpu, b=callee_cpu: measure.run_program("raw_ping_pong", 5000, a, b)["p50_us"],
            rounds,
        )
        mine, theirs = switches_per_call(echo, callee, calls)
        counts = f"switches per call: caller {mine:.2f}, callee {theirs:.2f}"
        print(measure.row(f"Python call_one 64 B, {name}", result, "us", AIM, counts), flush=True)
        native = measure.interleave(
            lambda a=caller_cpu, b=callee_cpu: measure.run_program("call_native", 5000, a, b)["p50_us"],
            lambda a=caller_cpu, b=callee_cpu: measure.run_program("raw_ping_pong", 5000, a, b)["p50_us"],
            rounds,
        )
        print(measure.row(f"C++ CallOne 64 B, {name}", native, "us", AIM_NATIVE), flush=True)
    measure.pin(os.getpid(), set(cpus))
    procs.stop().get()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
