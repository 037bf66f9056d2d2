"""What a call costs in system calls and thread switches: counts, which do not depend on the machine's speed."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
from monarch import _runtime
from monarch._actor.process import process
from monarch.actor import Actor, endpoint, this_host

CALLS = 300
# For the calls that read the counts, and for threads that have nothing to do with calls.
SLACK = 20


def counts() -> dict[str, int]:
    """Of this process: its runtime's counters, and the voluntary switches of all its threads."""
    switches = 0
    for task in Path("/proc/self/task").iterdir():
        status = (task / "status").read_text()
        switches += int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return {**process().runtime.stats(), "switches": switches}


class Echo(Actor):
    @endpoint
    def echo(self, data: bytes) -> bytes:
        return data

    @endpoint
    def counts(self) -> dict[str, int]:
        return counts()


def main() -> None:
    echo = this_host().spawn_procs({"gpus": 1}).spawn("echo", Echo)
    for _ in range(50):
        echo.echo.call_one(b"x" * 64).get()
    mine, theirs = counts(), echo.counts.call_one().get()
    for _ in range(CALLS):
        assert echo.echo.call_one(b"x" * 64).get() == b"x" * 64
    both = ((theirs, echo.counts.call_one().get()), (mine, counts()))
    print(json.dumps([{name: after[name] - before[name] for name in before} for before, after in both]))


def test_one_wake_each_way(run_python: Any) -> None:
    # A program of its own: in this one, other tests' threads and loops may wait for news as well.
    done = run_python(__file__)
    assert (done.status, done.err) == (0, "")
    for cost in json.loads(done.out):
        assert CALLS <= cost["frames_sent"] <= CALLS + SLACK
        assert cost["futex_wakes"] <= CALLS + SLACK
        assert cost["futex_waits"] <= 2 * CALLS + SLACK
        assert cost["switches"] <= 2 * CALLS + SLACK
        assert cost["bell_writes"] == 0


PLAIN = [
    None,
    True,
    False,
    0,
    -1,
    2**31 - 1,
    -(2**31),
    0.0,
    -1.5,
    math.inf,
    b"",
    b"x" * 255,
    b"x" * 256,
    b"x" * 1024,
    "",
    "grüße \N{SNOWMAN}",
    "\N{SNOWMAN}" * 100,
    (),
    (1,),
    (1, "a"),
    (1, "a", b"b"),
    ((b"data", 2, 3.0), {}),
    {},
]


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: repr(value)[:20])
def test_plain_objects_are_pickled_in_short(value: Any) -> None:
    data = _runtime.dumps_plain(value)
    assert data is not None
    for loaded in (pickle.loads(data), _runtime.loads_plain(data, pytest.fail)):
        assert loaded == value
        assert type(loaded) is type(value)


class MyBytes(bytes):
    pass


class MyInt(int):
    pass


OTHERS = [
    2**31,
    -(2**31) - 1,
    2**70,
    1j,
    b"x" * 1025,
    "\N{SNOWMAN}" * 400,
    "\ud800",  # no UTF-8
    MyBytes(b"x"),
    MyInt(1),
    [1],
    {"a": 1},
    (1, 2, 3, 4),
    ((((1,),),),),
    (("x" * 1000,) * 3, ("y" * 1000,) * 3),
    (1, [2]),
    bytearray(b"x"),
    object(),
]


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: repr(value)[:20])
def test_other_objects_are_left_to_the_pickler(value: Any) -> None:
    assert _runtime.dumps_plain(value) is None


def test_other_pickles_are_left_to_the_unpickler() -> None:
    def otherwise(data: bytes) -> tuple[bytes]:
        return (data,)

    data = _runtime.dumps_plain(((b"data", 3.0, "text"), {})) or b""
    others = [pickle.dumps(value, 5) for value in OTHERS] + [pickle.dumps(1, 2), b"\x80\x05."]
    others += [data[:size] for size in range(len(data))] + [data + b"."]
    others += [b"\x80\x05\x8c\x01\xff.", b"\x80\x05\x85.", b"\x80\x05" + b"N" * 17 + b"."]
    for other in others:
        assert _runtime.loads_plain(other, otherwise) == (other,)


if __name__ == "__main__":
    main()
