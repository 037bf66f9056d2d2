"""Bytes that are written once and then read."""

from __future__ import annotations

import io


class FrozenBuffer(io.BytesIO):
    """A reader over bytes; `len` is what is left of them."""

    def __len__(self) -> int:
        return len(self.getbuffer()) - self.tell()

    def write(self, data: object) -> int:
        raise io.UnsupportedOperation("a frozen buffer is only read")


class Buffer:
    """Collects bytes for one `FrozenBuffer`."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def freeze(self) -> FrozenBuffer:
        """What was written so far; the buffer is empty afterwards."""
        parts, self._parts = self._parts, []
        return FrozenBuffer(b"".join(parts))
