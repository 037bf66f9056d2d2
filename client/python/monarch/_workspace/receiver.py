"""A host's end of a synchronisation."""

from __future__ import annotations

import itertools
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from monarch._actor.actor import Actor
from monarch._actor.context import Context, context
from monarch._actor.endpoint import endpoint
from monarch._actor.errors import ActorError
from monarch._workspace.listing import (
    Entry,
    Listing,
    boot_id,
    identities,
    join,
    parents,
    scan,
)
from monarch._workspace.source import Piece, digest
from monarch._workspace.stage import Stage, set_attributes

ROOT_VARIABLE = "WORKSPACE_DIR"
# Two requests are under way at a time: what either process has in memory of the files.
REQUEST_BYTES = 4 << 20
_REQUEST_FILES = 1024
# Of files that are written to while they are read.
_ATTEMPTS = 5


class WorkspaceReceiver(Actor):
    """One on each host: makes the host's workspace directory what a listing says."""

    @endpoint
    def receive(self, listing: Listing, source: Any) -> None:
        where = os.environ.get(ROOT_VARIABLE, "")
        try:
            Synchronisation(listing, source, root_of(where), context()).run()
        except Exception as error:
            raise RuntimeError(f"{socket.gethostname()}:{where}: {_words(error)}") from error


def root_of(where: str) -> str:
    """The host's workspace directory without links; it is made if it is missing."""
    if not where:
        raise RuntimeError(f"{ROOT_VARIABLE} is not set in the environment of the host's worker loop")
    if not os.path.isabs(where):
        raise RuntimeError(f"{ROOT_VARIABLE} has to be an absolute path")
    os.makedirs(where, exist_ok=True)
    return os.path.realpath(where)


def _words(error: BaseException) -> str:
    if isinstance(error, ActorError) and error.exception is not None:
        return f"in the caller: {_words(error.exception)}"
    return str(error) if isinstance(error, (OSError, RuntimeError)) else repr(error)


class Synchronisation:
    """Fetches what is missing beside the old tree, and then changes the tree, or leaves it as it was."""

    def __init__(self, listing: Listing, source: Any, root: str, call: Context) -> None:
        self._listing = listing
        self._wanted = dict(listing.entries)
        self._source = source
        self._root = root
        self._call = call
        self._have: dict[str, Entry] = {}
        self._displaced: set[str] = set()

    def run(self) -> None:
        self._check_places()
        with Stage(self._root, self._check_wanted) as stage:
            self._look()
            content, attributes = self._compare()
            self._fetch(stage, content)
            try:
                self._apply(stage, content, attributes)
            except BaseException as error:
                left = stage.undo()
                if left:
                    raise RuntimeError(
                        f"{_words(error)}; and what was changed could not be put back: {'; '.join(left)}"
                    ) from error
                raise

    def _check_wanted(self) -> None:
        if self._call.cancelled:
            raise RuntimeError("the synchronisation was given up")

    def _check_places(self) -> None:
        """Nothing is reached through a link, and no directory is to be a copy of itself or of what is around it."""
        above = {parent for target in self._listing.targets for parent in parents(target)}
        for relative in sorted({*above, *self._listing.targets}):
            path = join(self._root, relative)
            if os.path.lexists(path) and not stat.S_ISDIR(os.lstat(path).st_mode):
                raise RuntimeError(f"{path} is in the way: it is a link or a file, and not a directory")
        if self._listing.boot != boot_id():
            return
        for target in self._listing.targets:
            path = join(self._root, target)
            around = identities(path)
            exists = os.path.lexists(path)
            for source in self._listing.sources:
                if source[0] in around or (exists and around[0] in source):
                    raise RuntimeError(
                        f"{path} contains a directory of the workspace that is to be copied, or lies in it"
                    )

    def _look(self) -> None:
        for target in self._listing.targets:
            top = join(self._root, target)
            if os.path.lexists(top):
                for parent in (target, *parents(target)):
                    path = join(self._root, parent)
                    self._have[parent] = Entry(os.lstat(path).st_mode, 0, os.lstat(path).st_mtime_ns)
                scan(top, target, self._have)

    def _compare(self) -> tuple[dict[str, Entry], list[str]]:
        """The files and links that have another content, and the files that differ in their attributes alone."""
        content: dict[str, Entry] = {}
        attributes: list[str] = []
        doubtful: list[tuple[str, Entry]] = []
        for path, entry in self._wanted.items():
            old = self._have.get(path)
            if entry.kind == stat.S_IFDIR:
                continue
            if old is None or (old.kind, old.size, old.link) != (entry.kind, entry.size, entry.link):
                content[path] = entry
            elif entry.kind == stat.S_IFREG:
                if old.mtime_ns != entry.mtime_ns:
                    doubtful.append((path, entry))
                elif old.mode != entry.mode:
                    attributes.append(path)
        for path, entry, theirs in self._digests(doubtful):
            if theirs is not None and _digest_of(join(self._root, path)) == theirs:
                attributes.append(path)
            else:
                content[path] = entry
        return content, attributes

    def _digests(self, files: list[tuple[str, Entry]]) -> Iterator[tuple[str, Entry, bytes | None]]:
        batch: list[tuple[str, Entry]] = []
        size = 0
        for number, (path, entry) in enumerate(files, 1):
            batch.append((path, entry))
            size += entry.size
            if number < len(files) and size < REQUEST_BYTES and len(batch) < _REQUEST_FILES:
                continue
            self._check_wanted()
            found = self._source.digests.call_one([entry.number for _, entry in batch]).get()
            for (name, wanted), theirs in zip(batch, found, strict=True):
                yield name, wanted, theirs
            batch, size = [], 0

    def _fetch(self, stage: Stage, content: dict[str, Entry]) -> None:
        """Brings the new content to the stage. What has vanished in the caller is no longer wanted."""
        paths = {entry.number: path for path, entry in content.items() if entry.kind == stat.S_IFREG}
        missing = list(paths)
        for _ in range(_ATTEMPTS):
            changed = self._fetch_once(stage, [content[paths[number]] for number in missing])
            missing = []
            for number, now in zip(changed, self._source.look.call_one(changed).get(), strict=True):
                if now is None:
                    del content[paths[number]], self._wanted[paths[number]]
                else:
                    content[paths[number]] = self._wanted[paths[number]] = now
                    missing.append(number)
            if not missing:
                break
        else:
            names = ", ".join(paths[number] for number in missing[:3])
            raise RuntimeError(f"written to again and again while it was read in the caller: {names}")
        for number, path in paths.items():
            if path in content:
                set_attributes(stage.new(str(number)), content[path])

    def _fetch_once(self, stage: Stage, files: list[Entry]) -> list[int]:
        """The files that were found to have changed."""
        changed: dict[int, None] = {}
        previous: tuple[list[Piece], Any] | None = None
        for request in itertools.chain(requests(files), (None,)):
            self._check_wanted()
            following = None if request is None else (request, self._source.read.call_one(request))
            if previous is not None:
                for piece, data in zip(previous[0], previous[1].get(), strict=True):
                    if data is None:
                        changed[piece.number] = None
                    else:
                        _write(stage.new(str(piece.number)), piece.offset, data)
            previous = following
        return list(changed)

    def _apply(self, stage: Stage, content: dict[str, Entry], attributes: list[str]) -> None:
        for path in sorted(path for path, entry in self._wanted.items() if entry.kind == stat.S_IFDIR):
            self._open_directory(stage, path)
        for number, (path, entry) in enumerate(content.items()):
            self._clear(stage, path, entry)
            new = stage.new(str(entry.number))
            if entry.kind == stat.S_IFLNK:
                new = stage.new(f"link{number}")
                os.symlink(entry.link, new)
                set_attributes(new, entry)
            stage.place(new, stage.path(path))
        for path in attributes:
            stage.set_attributes(stage.path(path), self._wanted[path])
        for path in sorted(self._have.keys() - self._wanted.keys()):
            if self._displaced.isdisjoint(parents(path)):
                self._displace(stage, path)
        # Upwards, and last: a change in a directory changes its time.
        for path in sorted(self._wanted, reverse=True):
            entry = self._wanted[path]
            if entry.kind == stat.S_IFDIR and entry.mtime_ns is not None:
                stage.set_attributes(stage.path(path), entry)

    def _open_directory(self, stage: Stage, path: str) -> None:
        """Sees to it that there is a directory and that it can be changed, until it gets its attributes."""
        entry = self._wanted[path]
        was_cleared = self._clear(stage, path, entry)
        old = None if was_cleared else self._have.get(path)
        if old is None:
            # Pipes and sockets are in no listing.
            if os.path.lexists(stage.path(path)) and not stat.S_ISDIR(os.lstat(stage.path(path)).st_mode):
                stage.displace(stage.path(path))
            if not os.path.lexists(stage.path(path)):
                stage.make_directory(stage.path(path), entry.permissions | stat.S_IRWXU)
        elif entry.mtime_ns is not None and old.permissions & stat.S_IRWXU != stat.S_IRWXU:
            stage.set_attributes(stage.path(path), old._replace(mode=old.mode | stat.S_IRWXU))

    def _clear(self, stage: Stage, path: str, entry: Entry) -> bool:
        """Takes away a directory that shall be something else, or what shall be a directory."""
        old = self._have.get(path)
        if old is None or old.kind == entry.kind or stat.S_IFDIR not in (old.kind, entry.kind):
            return False
        self._displace(stage, path)
        return True

    def _displace(self, stage: Stage, path: str) -> None:
        stage.displace(stage.path(path))
        self._displaced.add(path)


def requests(files: Iterable[Entry]) -> Iterator[list[Piece]]:
    """All bytes of the files, in requests of a bounded size."""
    request: list[Piece] = []
    room = REQUEST_BYTES
    for entry in files:
        offset = 0
        while True:
            size = min(room, entry.size - offset)
            request.append(Piece(entry.number, offset, size, entry.version))
            offset += size
            room -= size
            if room == 0 or len(request) == _REQUEST_FILES:
                yield request
                request, room = [], REQUEST_BYTES
            if offset == entry.size:
                break
    if request:
        yield request


def _write(path: str, offset: int, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if offset == 0 else 0), 0o600)
    try:
        view = memoryview(data)
        while view:
            written = os.pwrite(file, view, offset)
            view, offset = view[written:], offset + written
    finally:
        os.close(file)


def _digest_of(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return digest(file)
    finally:
        os.close(file)
