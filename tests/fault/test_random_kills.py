"""Thousands of calls while workers and owners of meshes are killed, frozen and stopped at random: each call ends, with the
value that is its own or a typed error; none runs twice; and nothing grows.

`MONARCH_TEST_SEED` repeats a run's choices. `--full` makes 10,000 calls in place of 500.
"""

from __future__ import annotations

import os
import random
import subprocess

import pytest
from census import resources
from live import FULL, Live

CALLS = 10_000 if FULL else 500
CALLS_PER_ACTION = 40 if FULL else 20
WARM_UP = 100
STORM_S = 500.0


def seed() -> int:
    return int(os.environ.get("MONARCH_TEST_SEED") or random.randrange(1 << 32))


@pytest.mark.timeout(590)
def test_each_call_ends(live: Live) -> None:
    number = seed()
    print(f"seed {number}: MONARCH_TEST_SEED={number} repeats it")
    client = live.client(stderr=subprocess.DEVNULL)
    client.ask("from storm import storm")

    def storm(seed: int, calls: int) -> None:
        ledger = live.folder / f"ledger{seed}"
        found = client.ask(f"storm({seed}, {str(ledger)!r}, {calls}, {CALLS_PER_ACTION})", STORM_S)
        print(found)
        assert found["hung"] == 0
        assert found["sent"] == found["ended"] == sum(found["outcomes"].values())
        assert found["wrong"] == []
        assert found["ledger"] == []
        assert found["outcomes"]["answered"] > calls / 2
        assert set(found["actions"]) == {"kill", "freeze", "stop"} or calls == WARM_UP

    storm(number + 1, WARM_UP)
    watched = {"client": client.pid, "daemon": client.daemon(), "launcher": client.launcher()}
    before = {name: resources(pid) for name, pid in watched.items()}
    storm(number, CALLS)
    for name, pid in watched.items():
        after = resources(pid)
        print(name, before[name], after)
        assert after["fds"] <= before[name]["fds"] + 2, (name, before[name], after)
        assert after["threads"] <= before[name]["threads"] + 4, (name, before[name], after)
        assert after["zombies"] == 0
    assert client.finish() == 0
    live.assert_gone()
