"""The actor in the client's process between those who wait at breakpoints and the operator."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

from monarch._actor.actor import Actor
from monarch._actor.actor_mesh import ActorMesh, ActorMeshCore
from monarch._actor.concurrent import concurrent_endpoint
from monarch._actor.controller import get_or_spawn_controller
from monarch._actor.endpoint import NotAnEndpoint, as_endpoint, endpoint
from monarch._actor.readiness import Readiness
from monarch._actor.shape import Shape
from monarch._debugger import address as debug_address
from monarch._debugger.debug_command import (
    HELP,
    Attach,
    Cast,
    Continue,
    DebugCommand,
    Help,
    ListCommand,
    Quit,
    RanksType,
)
from monarch._debugger.debug_io import DebugCliIO, DebugIO, DebugIOError, DebugStdIO
from monarch._debugger.debug_session import DebugSession, DebugSessionInfo, DebugSessions

if TYPE_CHECKING:
    from monarch._runtime import Address

_PROMPT = "monarch_dbg> "
# For a rank to come to its prompt before a command that was cast to it is given up.
_CAST_S = 5.0


class DebugController(Actor):
    """Keeps the sessions and serves the operator, one at a time: a newcomer takes over."""

    def __init__(self) -> None:
        self.sessions = DebugSessions()
        self._watches: set[asyncio.Task[None]] = set()
        self._addresses: dict[tuple[str, int], Address] = {}
        self._arrived = asyncio.Event()
        self._task_lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None  # of the operator
        self._debug_io: DebugIO = DebugStdIO()
        self._listen_lock = asyncio.Lock()
        self._server: asyncio.Future[asyncio.Server] = asyncio.get_event_loop().create_future()

    # --- for programs ---

    @concurrent_endpoint
    async def wait_pending_session(self) -> None:
        """Until something waits at a breakpoint."""
        while len(self.sessions) == 0:
            self._arrived.clear()
            await self._arrived.wait()

    @endpoint
    async def list(self, print_output: bool = True) -> list[DebugSessionInfo]:
        """What waits at a breakpoint; by default also shown to the operator."""
        return await self._list(print_output)

    @concurrent_endpoint
    async def address(self) -> tuple[str, int]:
        """Where the operator's client connects; listens if it does not yet."""
        server = await self._listen()
        host, port = server.sockets[0].getsockname()[:2]
        return host, port

    # --- for ranks at a breakpoint ---

    @concurrent_endpoint
    async def session_start(
        self, address: Address, rank: int, coords: dict[str, int], hostname: str, actor_name: str
    ) -> str:
        """Returns the name under which the actor is known here: names of meshes are not unique."""
        server = await self._listen()
        name, count = actor_name, 1
        while self._addresses.get((name, rank), address) != address:
            count += 1
            name = f"{actor_name}~{count}"
        if (name, rank) in self.sessions:
            return name
        self._addresses[name, rank] = address
        if len(self.sessions) == 0:
            self._announce(server, name, rank)
        session = DebugSession(rank, coords, hostname, name)
        self.sessions.insert(session)
        self._arrived.set()
        watch = asyncio.get_running_loop().create_task(self._watch(session, address))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return name

    @concurrent_endpoint
    async def session_read(
        self, actor_name: str, rank: int, outputs: Any, function: str | None, lineno: int | None
    ) -> str:
        return await self.sessions.get(actor_name, rank).read(outputs, function, lineno)

    @concurrent_endpoint
    async def session_end(self, actor_name: str, rank: int, outputs: Any) -> None:
        self._end(actor_name, rank, outputs, "its endpoint has ended")

    def _end(self, name: str, rank: int, outputs: Any, why: str) -> None:
        if (name, rank) in self.sessions:
            self._addresses.pop((name, rank), None)
            self.sessions.remove(name, rank).end(outputs, why)

    async def _watch(self, session: DebugSession, address: Address) -> None:
        """A call that the actor cannot take while it waits at its breakpoint: its end tells of the actor's."""
        core = ActorMeshCore(session.actor_name, Actor, address[3], Readiness.done(), "<root>")
        core.set_procs([address[:3]])
        actor: Any = ActorMesh(core, Shape.unity())
        why = "its actor takes other calls"
        try:
            await as_endpoint(NotAnEndpoint(actor, "Actor", "__sizeof__", None)).call_one()
        except Exception as error:
            why = str(error)
        name, rank = session.actor_name, session.rank
        if (name, rank) in self.sessions and self.sessions.get(name, rank) is session:
            self._end(name, rank, [], why)

    # --- the server ---

    async def _listen(self) -> asyncio.Server:
        async with self._listen_lock:
            if not self._server.done():
                debug_address.server_protocol()
                host, port = debug_address.server_host(), debug_address.server_port()
                try:
                    server = await asyncio.start_server(self._handle_client, host, port)
                except OSError as error:
                    raise RuntimeError(
                        f"the debugger cannot listen at {host}:{port}: {error.strerror or error}. Set "
                        f"{debug_address.PORT_VARIABLE} to another port (0: any free one), or "
                        f"{debug_address.HOST_VARIABLE} to an address of this host"
                    ) from None
                self._server.set_result(server)
            return self._server.result()

    @staticmethod
    def _announce(server: asyncio.Server, name: str, rank: int) -> None:
        host, port = server.sockets[0].getsockname()[:2]
        print(
            f"monarch: rank {rank} of {name!r} waits at a breakpoint; talk to it with: "
            f"python -m monarch.debug {host} {port}",
            file=sys.stderr,
            flush=True,
        )

    async def _handle_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._task_lock:
            if self._task is not None and not self._task.done():
                with contextlib.suppress(DebugIOError):
                    await self._debug_io.output("\nAnother operator has taken over.\n")
                self._task.cancel()
                await asyncio.wait((self._task,))
            self._debug_io = DebugCliIO(reader, writer)
            self._task = asyncio.get_running_loop().create_task(self._serve(self._debug_io))

    async def _serve(self, debug_io: DebugIO) -> None:
        try:
            await self._enter()
        except DebugIOError:
            pass  # The operator went away; the sessions wait for the next one.
        finally:
            await debug_io.quit()

    # --- the operator ---

    async def _enter(self) -> None:
        """Takes commands until the operator quits."""
        await self._debug_io.output("Monarch's debugger: 'help' lists the commands, 'list' what waits.\n")
        while True:
            line = await self._debug_io.input(_PROMPT)
            if not line.strip():
                continue
            command = await DebugCommand.parse(self._debug_io, line)
            if isinstance(command, Quit):
                await self._debug_io.output("Left; what waits at a breakpoint goes on waiting.\n")
                return
            if command is not None:
                try:
                    await self._run(command)
                except ValueError as error:
                    await self._debug_io.output(f"{error}\n")

    async def _run(self, command: DebugCommand) -> None:
        if isinstance(command, Help):
            await self._debug_io.output(HELP)
        elif isinstance(command, ListCommand):
            await self._list(True)
        elif isinstance(command, Attach):
            await self.sessions.get(command.actor_name, command.rank).attach(self._debug_io)
        elif isinstance(command, Cast):
            await self._cast(command.command, (command.actor_name, command.ranks))
        elif isinstance(command, Continue):
            await self._cast("clear", None)
            await self._cast("continue", None)

    async def _list(self, print_output: bool) -> Any:
        infos = sorted(self.sessions.info())
        if print_output:
            rows = [("ACTOR", "RANK", "COORDINATES", "HOST", "FUNCTION", "LINE")]
            for info in infos:
                coords = ",".join(f"{name}={number}" for name, number in info.coords.items())
                fields = (info.actor_name, info.rank, coords, info.hostname, info.function, info.lineno)
                rows.append(tuple("" if field is None else str(field) for field in fields))  # type: ignore[arg-type]
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            for row in rows:
                cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
                await self._debug_io.output("  ".join(cells).rstrip() + "\n")
        return infos

    async def _cast(self, line: str, selection: tuple[str, RanksType | None] | None) -> None:
        chosen = [*self.sessions.iter(selection)]
        if not chosen and selection is not None:
            await self._debug_io.output(f"No rank of {selection[0]} that was named waits at a breakpoint.\n")
        sent = await asyncio.gather(
            *(asyncio.wait_for(session.send(line), _CAST_S) for session in chosen), return_exceptions=True
        )
        for session, result in zip(chosen, sent, strict=True):
            if isinstance(result, BaseException):
                text = f"{session.actor_name} {session.rank} is not at its prompt and did not get {line!r}.\n"
                await self._debug_io.output(text)


def debug_controller() -> DebugController:
    """The debugger's controller in the client's process; the first call creates it."""
    return get_or_spawn_controller("debug_controller", DebugController).get()
