"""Counts what ran, and says what failed."""

import dataclasses
import time


@dataclasses.dataclass
class Tally:
    """The results of one kind of test, or of all of them."""

    passed: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)

    @property
    def failed(self) -> int:
        return len(self.failures)

    def fail(self, name: str) -> None:
        self.failures.append(name)

    def add(self, other: "Tally") -> None:
        self.passed += other.passed
        self.failures += other.failures

    def closing_line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed"


class Stopwatch:
    def __init__(self) -> None:
        self._start = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self._start
