"""Where new files wait beside the old ones, and how they take their places."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable
from functools import partial

from monarch._workspace.listing import STAGE, Entry, entry_of

_LOCK_POLL_S = 0.02
_OWNER = 0o700


class Stage:
    """A directory in the workspace directory `root`, while this process alone may change what is there.

    Changes are renames, and can be taken back until the end. A process that is killed between the first and the last of
    them leaves a mixture, which the next synchronisation mends.
    """

    def __init__(self, root: str, check: Callable[[], None]) -> None:
        """`check` is called while somebody else has the stage, and may raise."""
        self._root = root
        self._path = os.path.join(root, STAGE)
        self._check = check
        self._lock = -1
        self._old = 0
        self._undo: list[Callable[[], object]] = []
        self._changed: set[str] = set()  # directories

    def __enter__(self) -> Stage:
        while not self._try_lock():
            self._check()
            time.sleep(_LOCK_POLL_S)
        try:
            for name in ("new", "old"):
                _remove(os.path.join(self._path, name))  # of one that was killed
                os.mkdir(os.path.join(self._path, name), _OWNER)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._leave()

    def _try_lock(self) -> bool:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._path, _OWNER)
        if not stat.S_ISDIR(os.lstat(self._path).st_mode):
            raise NotADirectoryError(f"{self._path} is in the way: remove it")
        lock = os.path.join(self._path, "lock")
        try:
            file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # Another one is just leaving.
            return False
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have removed the file: then it locks nothing.
            if os.path.samestat(os.fstat(file), os.lstat(lock)):
                self._lock = file
                return True
        os.close(file)
        return False

    def _leave(self) -> None:
        # What cannot be removed is in nobody's way, and the next one tries again.
        with contextlib.suppress(OSError):
            for name in ("new", "old"):
                _remove(os.path.join(self._path, name))
            os.unlink(os.path.join(self._path, "lock"))
        os.close(self._lock)
        with contextlib.suppress(OSError):
            os.rmdir(self._path)

    def new(self, name: str) -> str:
        """Where a new file or link of that name waits."""
        return os.path.join(self._path, "new", name)

    def path(self, relative: str) -> str:
        return os.path.join(self._root, relative) if relative else self._root

    def displace(self, path: str) -> None:
        """Takes something out of the tree."""
        old = self._next_old()
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode) and found.st_mode & _OWNER != _OWNER:
            self.set_attributes(path, entry_of(found)._replace(mode=found.st_mode | _OWNER))
        self._keep_time_around(path)
        os.rename(path, old)
        self._undo.append(partial(os.rename, old, path))

    def place(self, new: str, path: str) -> None:
        """Puts a new file or link in the place of an old one, if there is one; no reader finds neither."""
        self._keep_time_around(path)
        if os.path.lexists(path):
            old = self._next_old()
            try:
                os.link(path, old, follow_symlinks=False)
            except OSError:  # A file system without hard links, or a file of somebody else.
                os.rename(path, old)
            self._undo.append(partial(os.replace, old, path))
            os.replace(new, path)
        else:
            os.rename(new, path)
            self._undo.append(partial(os.unlink, path))

    def make_directory(self, path: str, mode: int) -> None:
        self._keep_time_around(path)
        os.mkdir(path, mode)
        self._undo.append(partial(os.rmdir, path))

    def set_attributes(self, path: str, entry: Entry) -> None:
        """Of a directory or regular file that is there."""
        old = entry_of(os.lstat(path))
        if (old.mode, old.mtime_ns) != (entry.mode, entry.mtime_ns):
            self._undo.append(partial(set_attributes, path, old))
            set_attributes(path, entry)

    def undo(self) -> list[str]:
        """Takes all changes back. What could not be, in words."""
        failed = []
        while self._undo:
            try:
                self._undo.pop()()
            except OSError as error:
                failed.append(str(error))
        return failed

    def _keep_time_around(self, path: str) -> None:
        """Before the first change in a directory."""
        directory = os.path.dirname(path)
        if directory not in self._changed:
            self._changed.add(directory)
            self._undo.append(partial(set_attributes, directory, entry_of(os.lstat(directory))))

    def _next_old(self) -> str:
        self._old += 1
        return os.path.join(self._path, "old", str(self._old))


def set_attributes(path: str, entry: Entry) -> None:
    """Permissions and time; of a link, the time."""
    assert entry.mtime_ns is not None
    if entry.kind != stat.S_IFLNK:
        os.chmod(path, entry.permissions)
    os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)


def _remove(path: str) -> None:
    """A tree, also one with directories that may not be written to; of a link, the link alone."""
    if not os.path.lexists(path):
        return
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
        return
    for directory, names, _ in os.walk(path):
        for name in names:
            below = os.path.join(directory, name)
            if not os.path.islink(below):
                os.chmod(below, _OWNER)
    shutil.rmtree(path)
