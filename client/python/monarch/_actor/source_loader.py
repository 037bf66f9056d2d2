"""Whole files of the client, for debuggers in workers that do not have them. Tracebacks need no more than source_lines."""

from __future__ import annotations

import linecache
from typing import Any

from monarch._actor.actor import Actor
from monarch._actor.controller import get_or_spawn_controller
from monarch._actor.endpoint import endpoint


class SourceLoaderController(Actor):
    """In the client's process, by the name "source_loader"."""

    @endpoint
    def get_source(self, filename: str) -> str:
        """The file's text, "" if there is none."""
        return "".join(linecache.getlines(filename))


def load_source(filename: str) -> str:
    """Asks the client; blocks. "" if it has no such file."""
    # Not get(), which warns in an async actor.
    found = get_or_spawn_controller("source_loader", SourceLoaderController)
    found._wait(None)
    controller: Any = found.get()
    text = controller.get_source.call_one(filename)
    text._wait(None)
    return str(text.get())


class RemoteImportLoader:
    """A module's `__loader__`, as far as linecache and inspect use it."""

    def __init__(self, filename: str) -> None:
        self._filename = filename

    def get_source(self, module_name: str) -> str:
        """ImportError if the client does not have it."""
        text = load_source(self._filename)
        if not text:
            raise ImportError(f"the client has no source for {self._filename}")
        return text
