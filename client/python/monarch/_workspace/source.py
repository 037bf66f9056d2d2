"""The caller's end of a synchronisation: the local directories, and an actor that serves their files."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from monarch._actor.actor import Actor
from monarch._actor.endpoint import endpoint
from monarch._workspace.listing import (
    PARENT,
    STAGE,
    Entry,
    Listing,
    boot_id,
    entry_of,
    identities,
    join,
    parents,
    scan,
    version_of,
)

_DIGEST_BLOCK = 1 << 20


class Piece(NamedTuple):
    """Bytes of a file, if it still is of the version."""

    number: int
    offset: int
    size: int
    version: tuple[int, ...]


def digest(file: int) -> bytes:
    """Of an open file from its start; 32 bytes."""
    out = hashlib.blake2b(digest_size=32)
    offset = 0
    while block := os.pread(file, _DIGEST_BLOCK, offset):
        out.update(block)
        offset += len(block)
    return out.digest()


def check_target(remote: str) -> str:
    """A place under the hosts' workspace directory, normalised; ValueError if it is none."""
    path = PurePosixPath(remote)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(
            f"workspace: {remote!r} is not a place below the hosts' workspace directory; it has to be a relative "
            "path without '..'"
        )
    if path.parts[:1] == (STAGE,):
        raise ValueError(f"workspace: {STAGE!r} is used by the synchronisation itself")
    return "" if path == PurePosixPath(".") else str(path)


def list_workspace(dirs: Mapping[Path, str]) -> tuple[Listing, list[str]]:
    """Looks at the local directories: what the hosts shall have, and the files by their numbers. Of files that go to
    one place, the later directory's counts."""
    listing = Listing({"": PARENT}, [], [], boot_id())
    of_path: dict[str, str] = {}
    for local, remote in dirs.items():
        target = check_target(remote)
        top = os.path.realpath(local)
        found: dict[str, Entry] = {}
        try:
            scan(top, target, found)
        except OSError as error:
            raise type(error)(error.errno, f"workspace: {error.strerror}", error.filename) from None
        if target:
            found[target] = entry_of(os.stat(top))
        for path in found:
            of_path[path] = join(top, path[len(target) :].lstrip("/"))
        listing.entries.update(found)
        listing.targets.append(target)
        listing.sources.append(identities(top))
    for target in listing.targets:
        for parent in parents(target):
            listing.entries.setdefault(parent, PARENT)
    return listing, _number(listing.entries, of_path)


def _number(entries: dict[str, Entry], of_path: dict[str, str]) -> list[str]:
    files: list[str] = []
    for path, entry in list(entries.items()):
        for parent in parents(path):
            if entries[parent].kind != stat.S_IFDIR:
                raise ValueError(
                    f"workspace: {parent!r} would have to be a file and, for {path!r}, a directory as well"
                )
        if entry.kind == stat.S_IFREG:
            entries[path] = entry._replace(number=len(files))
            files.append(of_path[path])
    return files


class WorkspaceSource(Actor):
    """Serves the files of a workspace, and nothing else, to the hosts."""

    def __init__(self, files: list[str]) -> None:
        self._files = files

    @endpoint
    def read(self, pieces: list[Piece]) -> list[bytes | None]:
        """None for what has changed."""
        return [self._read(piece) for piece in pieces]

    @endpoint
    def digests(self, numbers: list[int]) -> list[bytes | None]:
        """Of whole files; None for what is gone."""
        return [self._digest(self._files[number]) for number in numbers]

    @endpoint
    def look(self, numbers: list[int]) -> list[Entry | None]:
        """The files as they are now; None for what is gone."""
        return [self._look(number) for number in numbers]

    def _look(self, number: int) -> Entry | None:
        try:
            found = os.lstat(self._files[number])
        except (FileNotFoundError, NotADirectoryError):
            return None
        return entry_of(found)._replace(number=number) if stat.S_ISREG(found.st_mode) else None

    def _read(self, piece: Piece) -> bytes | None:
        file = _open(self._files[piece.number])
        if file is None:
            return None
        try:
            data = os.pread(file, piece.size, piece.offset)
            # Looked at afterwards: what was read before the change may be read again.
            is_same = version_of(os.fstat(file)) == piece.version
        finally:
            os.close(file)
        return data if is_same and len(data) == piece.size else None

    def _digest(self, path: str) -> bytes | None:
        file = _open(path)
        if file is None:
            return None
        try:
            return digest(file)
        finally:
            os.close(file)


def _open(path: str) -> int | None:
    try:
        # O_NONBLOCK: it may be a named pipe by now.
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        if os.path.islink(path):
            return None
        raise
