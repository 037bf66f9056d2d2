"""Spawn of 8 processes until an actor in each has answered, beside 8 bare interpreters that import the same modules
and answer over a pipe. The daemon and the session's launcher run already. Aim: at most 1.3 times the bare ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import measure
from monarch.actor import Actor, endpoint, this_host

AIM = 1.3
PROCS = 8


class Answer(Actor):
    @endpoint
    def modules(self) -> list[str]:
        return sorted(sys.modules)


def ours_ms() -> float:
    start = time.perf_counter()
    procs = this_host().spawn_procs({"gpus": PROCS})
    procs.spawn("answer", Answer).modules.call().get()
    taken = (time.perf_counter() - start) * 1000
    procs.stop().get()
    return taken


def bare_ms(modules: list[str]) -> float:
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1].split(','):\n"
        "    try: importlib.import_module(name)\n"
        "    except ImportError: pass\n"
        "sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", code, ",".join(modules)]
    start = time.perf_counter()
    children = [subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(PROCS)]
    for child in children:
        assert child.stdout is not None and child.stdout.read(1) == b"x"
    taken = (time.perf_counter() - start) * 1000
    for child in children:
        child.communicate()
    return taken


def main() -> int:
    rounds = 2 if os.environ.get("MONARCH_BENCH_SMOKE") == "1" else 5
    procs = this_host().spawn_procs({"gpus": 1})
    worker_modules = procs.spawn("answer", Answer).modules.call_one().get()
    procs.stop().get()
    modules = [name for name in worker_modules if name not in ("__main__", "__mp_main__")]
    result = measure.interleave(ours_ms, lambda: bare_ms(modules), rounds)
    print(
        measure.row(f"spawn of {PROCS}, first answers", result, "ms", AIM, f"{len(modules)} modules"),
        flush=True,
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
