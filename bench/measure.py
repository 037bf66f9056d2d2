"""What the benchmarks share: rounds, percentiles, pinning, and counts of one process.

Rules: the limit, ours and the limit again in one round; the result is the median of the rounds' ratios. A round whose
limit moved by more than half between its two runs says nothing and is dropped.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import monarch


@dataclass
class Result:
    """Medians over the rounds that counted. Times in the unit the caller measured in."""

    ours: float
    limit: float
    ratio: float
    rounds: int
    dropped: int


def program(name: str) -> Path:
    """A program of bench/ built by Bazel; its folder is given by the runner."""
    return Path(os.environ["MONARCH_BENCH_BIN"]) / name


def run_program(name: str, *args: object) -> dict[str, float]:
    """Runs a program of bench/ and reads the JSON object that it prints."""
    # Ours among them start a daemon: the installed one.
    binaries = Path(monarch.__file__).parent / "bin"
    env = dict(os.environ, PATH=f"{binaries}:{os.environ['PATH']}")
    out = subprocess.run(
        [str(program(name)), *map(str, args)], check=True, capture_output=True, text=True, env=env
    )
    return json.loads(out.stdout)


def interleave(ours: Callable[[], float], limit: Callable[[], float], rounds: int) -> Result:
    """Runs limit, ours, limit in each round and compares within the round."""
    kept: list[tuple[float, float]] = []
    dropped = 0
    while len(kept) < rounds and dropped <= 2 * rounds:
        before = limit()
        mine = ours()
        after = limit()
        if max(before, after) > 1.5 * min(before, after):
            dropped += 1
            continue
        kept.append((mine, (before + after) / 2))
    if not kept:
        raise RuntimeError("the limit moved by half in every round: this machine is too noisy now")
    return Result(
        ours=statistics.median(mine for mine, _ in kept),
        limit=statistics.median(limit for _, limit in kept),
        ratio=statistics.median(mine / limit for mine, limit in kept),
        rounds=len(kept),
        dropped=dropped,
    )


def percentile(values: list[float], fraction: float) -> float:
    """The value below which that fraction of `values` lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]


def voluntary_switches(pid: int) -> int:
    """Of all threads of a process."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


def pin(pid: int, cpus: set[int]) -> None:
    """Every thread of a process, so that threads made earlier move too."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cpus)


def row(name: str, result: Result, unit: str, aim: float, extra: str = "") -> str:
    """One line of a benchmark's table."""
    verdict = "ok" if result.ratio <= aim else "MISSED"
    return (
        f"{name:<34} {result.ours:>9.2f} {unit}  limit {result.limit:>9.2f} {unit}  "
        f"ratio {result.ratio:>5.2f} (aim {aim:g}: {verdict})  rounds {result.rounds}, dropped {result.dropped}  {extra}"
    )
