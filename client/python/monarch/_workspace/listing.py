"""What there is in directories, as one compares it between hosts."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

# Of the synchronisation itself, in the workspace directory of a host; no part of a workspace.
STAGE = ".monarch-sync"

Identity = tuple[int, int]


class Entry(NamedTuple):
    """A directory, a regular file or a symbolic link.

    Attributes:
        mode: as `st_mode` has it.
        mtime_ns: None for a directory whose attributes are not those of the workspace.
        link: what a link says.
        number: of a file in the caller, by which it is served.
        version: of a file, what is different once it is another file or was written to.
    """

    mode: int
    size: int
    mtime_ns: int | None
    link: str = ""
    number: int = -1
    version: tuple[int, ...] = ()

    @property
    def kind(self) -> int:
        return stat.S_IFMT(self.mode)

    @property
    def permissions(self) -> int:
        return stat.S_IMODE(self.mode)


# Above the workspace's own directories.
PARENT = Entry(stat.S_IFDIR | 0o777, 0, None)


class Listing(NamedTuple):
    """A workspace as its hosts shall have it.

    Attributes:
        entries: by path, relative to the host's workspace directory and with parents; "" is that directory.
        targets: the directories in which nothing else stays.
        sources: of each local directory, its identity and that of all above it, upwards.
        boot: of the caller's machine: identities mean something there only.
    """

    entries: dict[str, Entry]
    targets: list[str]
    sources: list[list[Identity]]
    boot: str


def version_of(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def entry_of(found: os.stat_result, link: str = "") -> Entry:
    if not stat.S_ISREG(found.st_mode):
        return Entry(found.st_mode, 0, found.st_mtime_ns, link)
    return Entry(found.st_mode, found.st_size, found.st_mtime_ns, version=version_of(found))


def scan(top: str, prefix: str, entries: dict[str, Entry]) -> None:
    """Adds all that is below the directory `top`, with `prefix` in front of its path. Follows no link; leaves out what
    is neither a directory, a regular file nor a link, and what vanishes meanwhile."""
    waiting = [(top, prefix)]
    while waiting:
        directory, at = waiting.pop()
        try:
            found = list(os.scandir(directory))
        except (FileNotFoundError, NotADirectoryError):
            if directory == top:
                raise
            entries.pop(at, None)
            continue
        for item in found:
            path = join(at, item.name)
            if path == STAGE:
                continue
            try:
                link = os.readlink(item.path) if item.is_symlink() else ""
                entry = entry_of(item.stat(follow_symlinks=False), link)
            except FileNotFoundError:
                continue
            if entry.kind not in (stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK):
                continue
            entries[path] = entry
            if entry.kind == stat.S_IFDIR:
                waiting.append((item.path, path))


def join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory and name else directory or name


def parents(path: str) -> Iterable[str]:
    """All above a relative path, upwards, "" last."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def identity(path: str) -> Identity:
    found = os.stat(path)
    return (found.st_dev, found.st_ino)


def identities(path: str) -> list[Identity]:
    """Of an absolute path without links and of all above it, as far as they exist, upwards."""
    out = []
    for directory in (path, *map(str, Path(path).parents)):
        try:
            out.append(identity(directory))
        except FileNotFoundError:
            continue
    return out
