"""Where an operator types and reads."""

from __future__ import annotations

import asyncio
import sys


class DebugIOError(RuntimeError):
    """The operator's connection is gone."""

    def __init__(self) -> None:
        super().__init__("the connection to the operator of the debugger is gone")


class DebugIO:
    async def input(self, prompt: str = "") -> str:
        """One line, without its end."""
        raise NotImplementedError

    async def output(self, msg: str) -> None:
        raise NotImplementedError

    async def quit(self) -> None:
        """Closes it."""


class DebugStdIO(DebugIO):
    """This process's own terminal."""

    async def input(self, prompt: str = "") -> str:
        return await asyncio.to_thread(input, prompt)

    async def output(self, msg: str) -> None:
        sys.stdout.write(msg)
        sys.stdout.flush()


class DebugCliIO(DebugIO):
    """A connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def input(self, prompt: str = "") -> str:
        await self.output(prompt)
        try:
            line = await self._reader.readline()
        except (OSError, ValueError) as error:  # ValueError: a line without end
            raise DebugIOError from error
        if not line.endswith(b"\n"):
            raise DebugIOError
        return line.decode(errors="replace").rstrip("\r\n")

    async def output(self, msg: str) -> None:
        try:
            self._writer.write(msg.encode(errors="replace"))
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise DebugIOError from error

    async def quit(self) -> None:
        self._writer.close()
