"""The cells of the fault matrix: a fault, at a moment of a call's or a mesh's life, that meets a target; and the table."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from live import FULL

# The process ends -> kind, code.
DEATHS = {
    "SIGKILL": ("signalled", 9),
    "SIGSEGV": ("signalled", 11),
    "SIGABRT": ("signalled", 6),
    "throw": ("signalled", 6),  # an uncaught exception of C++
    "exit 7": ("exited", 7),
    "exit 0": ("stopped", 0),
}
CRASHES = (6, 11)
# It goes on: without TERM, and when it is continued.
SURVIVED = ("ignore TERM", "SIGSTOP")
FAULTS = (*DEATHS, *SURVIVED, "raise")
# Of a worker that has limits: the first ends it, the second is refused.
LIMIT_FAULTS = {"memory": ("out_of_memory", 9), "fork bomb": None}
MOMENTS = ("before ready", "in __init__", "idle", "queued call", "running call", "replying", "stopping")
# In a plain run one cell of so many, each fault and each moment among them.
SAMPLE = 5

_TABLE = pytest.StashKey[dict[tuple[str, str, str], str]]()


@dataclasses.dataclass
class Outcome:
    """What the table says of a cell. `sent` = `answered` + `failed`, or the cell has failed."""

    target: str
    moment: str
    fault: str
    answered: int = 0
    failed: int = 0
    sent: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.sent}={self.answered}+{self.failed} {self.seconds:.1f}s"


def cells(first: int = 0, faults: Iterable[str] = FAULTS) -> list[Any]:
    """Parameters (moment, fault); `first` shifts the sample."""
    return [
        pytest.param(moment, fault, id=f"{moment}-{fault}")
        for i, moment in enumerate(MOMENTS)
        for j, fault in enumerate(faults)
        if FULL or (2 * i + j + first) % SAMPLE == 0
    ]


@pytest.fixture
def outcome(request: pytest.FixtureRequest) -> Iterator[Outcome]:
    """Of the cell that the test is; its module says `TARGET`, and `NO_SUCH_CELL` with the reasons."""
    moment, fault = (request.node.callspec.params[name] for name in ("moment", "fault"))
    found = Outcome(request.module.TARGET, moment, fault)
    key = dataclasses.astuple(found)[:3]
    table = request.config.stash.setdefault(_TABLE, {})
    if reason := no_such_cell(request.module.NO_SUCH_CELL, moment, fault):
        table[key] = f"none: {reason}"
        pytest.skip(f"no such cell: {reason}")
    table[key] = "FAILED"
    started = time.monotonic()
    yield found
    found.seconds = time.monotonic() - started
    if not request.node.stash.get(CELL_FAILED, False):
        assert found.sent == found.answered + found.failed, str(found)
        table[key] = str(found)


CELL_FAILED = pytest.StashKey[bool]()


def no_such_cell(reasons: dict[tuple[str, str], str], moment: str, fault: str) -> str:
    """A reason may stand for all moments (`*`), or for all faults."""
    for key in ((moment, fault), ("*", fault), (moment, "*")):
        if key in reasons:
            return reasons[key]
    return ""


# A conftest has these two.
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[Any]:
    report = yield
    if report.failed:
        item.stash[CELL_FAILED] = True
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    write_table(terminalreporter, config)


def write_table(reporter: Any, config: pytest.Config) -> None:
    table = config.stash.get(_TABLE, {})
    for target in dict.fromkeys(key[0] for key in table):
        reasons: dict[str, str] = {}
        reporter.write_sep("=", f"faults of the {target}: sent=answered+failed; . is not in the sample")
        reporter.write_line(_row("", MOMENTS))
        met = {key[2] for key in table if key[0] == target}
        for fault in FAULTS if met.intersection(FAULTS) else LIMIT_FAULTS:
            texts = []
            for moment in MOMENTS:
                text = table.get((target, moment, fault), ".")
                if text.startswith("none: "):
                    text = "- " + reasons.setdefault(text.removeprefix("none: "), f"({len(reasons) + 1})")
                texts.append(text)
            reporter.write_line(_row(fault, texts))
        for reason, sign in reasons.items():
            reporter.write_line(f"- {sign} no such cell: {reason}")


def _row(name: str, texts: Any) -> str:
    return f"{name:12}" + "".join(f"{text:14}" for text in texts)
