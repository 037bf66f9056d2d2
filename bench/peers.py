"""The systems that are measured beside ours: programs of `bench/peers/`, run by the interpreter that `bench/setup` made
for each.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path


class Skipped(Exception):
    """This peer cannot be measured here; the text says why."""


def _environments() -> Path:
    if chosen := os.environ.get("MONARCH_BENCH_PEERS"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "monarch-bench"


def run(peer: str, script: str, *args: object, limit_s: float, **env: str) -> dict[str, list[float]]:
    """What `bench/peers/<script>` prints as its last line, a JSON object, under `peer`'s interpreter.

    Raises:
        Skipped: the peer is not installed, fails, or takes longer than `limit_s`.
    """
    python = _environments() / peer / "bin" / "python"
    if not python.exists():
        raise Skipped("not installed; bench/setup does it")
    program = Path(__file__).parent / "peers" / script
    # Its own installation and nothing of ours.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MONARCH_", "PYTHON"))}
    try:
        out = subprocess.run(
            [str(python), str(program), *map(str, args)],
            capture_output=True,
            text=True,
            env=clean | env,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Skipped(f"took longer than {limit_s:g} s") from None
    lines = out.stdout.strip().splitlines()
    if out.returncode != 0 or not lines:
        said = (out.stderr.strip().splitlines() or ["nothing"])[-1]
        raise Skipped(f"ended with {out.returncode}: {said}")
    return json.loads(lines[-1])
