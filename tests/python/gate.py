"""Holds actors up until a test lets them pass."""

from __future__ import annotations

import os
from pathlib import Path


class Gate:
    """A pipe: each byte in it lets one pass."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self._fd = os.open(path, os.O_RDWR)  # So that nobody waits for another end.

    def let_pass(self, count: int = 1) -> None:
        os.write(self._fd, bytes(count))

    def close(self) -> None:
        os.close(self._fd)


def pass_gate(path: str) -> None:
    with open(path, "rb", buffering=0) as gate:
        gate.read(1)
