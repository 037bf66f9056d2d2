"""What waits at a breakpoint, as the controller sees it. All on the controller's loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from monarch._debugger.debug_command import Ranks, RanksType
from monarch._debugger.debug_io import DebugIO


@dataclass(order=True)
class DebugSessionInfo:
    """One line of the list."""

    actor_name: str
    rank: int
    coords: dict[str, int]
    hostname: str
    function: str | None
    lineno: int | None


class DebugSession:
    """One rank that has reached a breakpoint. It lives until the rank's endpoint ends, or the rank."""

    def __init__(self, rank: int, coords: dict[str, int], hostname: str, actor_name: str) -> None:
        self.rank = rank
        self.coords = coords
        self.hostname = hostname
        self.actor_name = actor_name
        self.function: str | None = None
        self.lineno: int | None = None
        self._outputs: list[str] = []  # since the last input, for who attaches again
        self._shown = 0  # of these, to the operator
        self._read: asyncio.Future[str] | None = None  # the rank waits for a line
        self._end: str | None = None  # why it is over
        self._changed = asyncio.Event()

    def get_info(self) -> DebugSessionInfo:
        return DebugSessionInfo(
            self.actor_name, self.rank, self.coords, self.hostname, self.function, self.lineno
        )

    # --- the rank's side ---

    async def read(self, outputs: list[str], function: str | None, lineno: int | None) -> str:
        """The next line for pdb, after what pdb has printed. "" when the session is over."""
        self._outputs += outputs
        self.function, self.lineno = function, lineno
        self._read = asyncio.get_running_loop().create_future()
        self._changed.set()
        return await self._read

    def end(self, outputs: list[str], why: str) -> None:
        self._outputs += outputs
        self._end = why
        if self._read is not None and not self._read.done():
            self._read.set_result("")
        self._changed.set()

    # --- the operator's side ---

    async def attach(self, debug_io: DebugIO) -> None:
        """Until the operator detaches, or the session is over."""
        where = f"{self.actor_name} {self.rank} ({self.hostname})"
        await debug_io.output(f"Attached to debug session for {where}\n")
        self._shown = 0
        while True:
            self._changed.clear()
            while self._shown < len(self._outputs):
                self._shown += 1
                await debug_io.output(self._outputs[self._shown - 1])
            if self._end is not None:
                await debug_io.output(f"The session is over: {self._end}\n")
                break
            if self._is_at_prompt():
                line = await self._next_line(debug_io)
                if line == "detach":
                    break
                if line is not None:
                    self._answer(line)
            else:
                await self._changed.wait()
        await debug_io.output(f"Detached from debug session for {where}\n")

    async def send(self, line: str) -> None:
        """Waits for the prompt and types one line."""
        while not self._is_at_prompt():
            if self._end is not None:
                return
            self._changed.clear()
            await self._changed.wait()
        self._answer(line)

    def _is_at_prompt(self) -> bool:
        return self._read is not None and not self._read.done()

    def _answer(self, line: str) -> None:
        # Whatever happened while the operator typed: a session that is over needs no line.
        if self._read is not None and not self._read.done():
            self._outputs, self._shown = [], 0
            self._read.set_result(line + "\n")

    async def _next_line(self, debug_io: DebugIO) -> str | None:
        """None if the session changes meanwhile: its rank may die while the operator thinks."""
        typing = asyncio.ensure_future(debug_io.input())
        changing = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((typing, changing), return_when=asyncio.FIRST_COMPLETED)
            return typing.result() if typing.done() else None
        finally:
            changing.cancel()
            if not typing.done():
                typing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await typing


class DebugSessions:
    """All sessions, by actor name and rank."""

    def __init__(self) -> None:
        self._sessions: dict[str, dict[int, DebugSession]] = {}

    def insert(self, session: DebugSession) -> None:
        ranks = self._sessions.setdefault(session.actor_name, {})
        if session.rank in ranks:
            raise ValueError(
                f"Debug session for rank {session.rank} already exists for actor {session.actor_name}"
            )
        ranks[session.rank] = session

    def get(self, actor_name: str, rank: int) -> DebugSession:
        ranks = self._sessions.get(actor_name)
        if ranks is None:
            raise ValueError(f"No debug sessions for actor {actor_name}")
        if rank not in ranks:
            raise ValueError(f"No debug session for rank {rank} for actor {actor_name}")
        return ranks[rank]

    def remove(self, actor_name: str, rank: int) -> DebugSession:
        session = self.get(actor_name, rank)
        del self._sessions[actor_name][rank]
        if not self._sessions[actor_name]:
            del self._sessions[actor_name]
        return session

    def iter(self, selection: tuple[str, RanksType | None] | None) -> Iterator[DebugSession]:
        """All; or of one actor all, or those of the ranks or coordinates."""
        if selection is None:
            for ranks in list(self._sessions.values()):
                yield from list(ranks.values())
            return
        name, wanted = selection
        for session in list(self._sessions.get(name, {}).values()):
            if wanted is None or _matches(session, wanted):
                yield session

    def info(self) -> list[DebugSessionInfo]:
        return [session.get_info() for session in self.iter(None)]

    def __len__(self) -> int:
        return sum(len(ranks) for ranks in self._sessions.values())

    def __contains__(self, item: tuple[str, int]) -> bool:
        name, rank = item
        return rank in self._sessions.get(name, {})


def _matches(session: DebugSession, wanted: RanksType) -> bool:
    if isinstance(wanted, dict):
        return all(
            name in session.coords and _is_among(session.coords[name], numbers)
            for name, numbers in wanted.items()
        )
    return _is_among(session.rank, wanted)


def _is_among(number: int, wanted: Ranks) -> bool:
    return number == wanted if isinstance(wanted, int) else number in wanted
