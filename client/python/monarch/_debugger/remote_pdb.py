"""pdb in a worker, whose terminal is the debugger's controller. On the actor's thread."""

from __future__ import annotations

import bdb
import inspect
import linecache
import os
import pdb
import socket
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

from monarch._actor.context import Instance, context
from monarch._actor.controller import get_or_spawn_controller
from monarch._actor.source_lines import keep_file
from monarch._actor.source_loader import load_source
from monarch._debugger.debug_controller import DebugController

if TYPE_CHECKING:
    from monarch._actor.future import Future

_OWN_MODULES = ["monarch._actor.*", "monarch._debugger.*", "asyncio.*"]


def set_trace(frame: FrameType) -> None:
    """Opens a session for the current actor, or goes on with the one it has. Raises what keeps it from doing so."""
    runner = context().actor_instance.runner
    assert runner is not None
    if runner.debugger is None:
        runner.debugger = RemotePdb(context().actor_instance)
    runner.debugger.start(frame)


def _wait(future: Future[Any]) -> Any:
    # get() would warn of the loop of an async actor, which has to stand still here.
    future._wait(None)
    return future.get()


class _Terminal:
    """stdin and stdout of pdb. What is printed travels with the next read."""

    def __init__(self, owner: RemotePdb) -> None:
        self._owner = owner
        self.printed: list[str] = []

    def write(self, text: str) -> None:
        self.printed.append(text)

    def flush(self) -> None:
        pass

    def readline(self) -> str:
        printed, self.printed = self.printed, []
        return self._owner.read(printed)


class RemotePdb(pdb.Pdb):
    def __init__(self, instance: Instance) -> None:
        self._terminal = _Terminal(self)
        super().__init__(stdin=self._terminal, stdout=self._terminal, skip=_OWN_MODULES, nosigint=True)  # type: ignore[arg-type]
        self._instance = instance
        self._controller: Any = None
        self._name = instance.name
        self._fetched: set[str] = set()

    # --- the actor's runner ---

    def start(self, frame: FrameType) -> None:
        self._open()
        self._fetch(frame.f_code.co_filename)
        self.set_trace(frame)

    def endpoint_done(self) -> None:
        """The endpoint returned."""
        sys.settrace(None)
        self.clear_all_breaks()
        printed, self._terminal.printed = self._terminal.printed, []
        rank = self._instance.rank.rank
        try:
            _wait(self._controller.session_end.call_one(self._name, rank, printed))
        except Exception as error:
            self._controller_is_gone(error)

    def endpoint_raised(self, error: BaseException) -> None:
        """The endpoint raised: the operator may look at where."""
        sys.settrace(None)
        if isinstance(error, Exception) and not isinstance(error, bdb.BdbQuit):
            self._terminal.printed.append(
                f"{type(error).__name__}: the endpoint raised; post-mortem follows\n"
            )
            self.reset()
            self.interaction(None, error.__traceback__)
        self.endpoint_done()

    # --- the controller ---

    def _open(self) -> None:
        if self._controller is None:
            self._controller = _wait(get_or_spawn_controller("debug_controller", DebugController))
        instance = self._instance
        point = instance.rank
        coords = {name: point[name] for name in point}
        self._name = _wait(
            self._controller.session_start.call_one(
                instance.address, point.rank, coords, socket.gethostname(), instance.name
            )
        )

    def read(self, printed: list[str]) -> str:
        """A line; "", which makes pdb quit, if nobody will type any more."""
        function = lineno = None
        if self.curframe is not None:
            code = self.curframe.f_code
            function = f"{inspect.getmodulename(code.co_filename)}.{code.co_name}"
            lineno = self.curframe.f_lineno
        rank = self._instance.rank.rank
        try:
            line: str = _wait(
                self._controller.session_read.call_one(self._name, rank, printed, function, lineno)
            )
        except Exception as error:
            self._controller_is_gone(error)
            return ""
        return line

    def _controller_is_gone(self, error: Exception) -> None:
        print(f"monarch: the debugger's session ended: {error}", file=sys.stderr, flush=True)

    # --- commands that would use the process's own terminal ---

    def do_clear(self, arg: str) -> Any:
        if arg:
            return super().do_clear(arg)
        self.clear_all_breaks()
        return None

    do_cl = do_clear

    def do_interact(self, arg: str) -> None:
        self.error("interact is not available at a distance; type statements at this prompt")

    def do_run(self, arg: str) -> None:
        self.error("an endpoint cannot be started again from here")

    do_restart = do_run

    # --- files that this host does not have ---

    def lookupmodule(self, filename: str) -> str | None:
        found = super().lookupmodule(filename)
        if found is None:
            return filename if filename in linecache.cache else None
        self._fetch(found)
        return found

    def _fetch(self, filename: str) -> None:
        """Gets the source from the client, once."""
        if filename in self._fetched or os.path.exists(filename):
            return
        self._fetched.add(filename)
        try:
            text = load_source(filename)
        except Exception as error:
            self.error(f"no source of {filename}: {error}")
            return
        if text:
            keep_file(filename, text)
