"""A host's end of a synchronisation, without hosts: what changes in its tree, and what does not when a step fails."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from monarch._workspace.listing import STAGE, Entry
from monarch._workspace.receiver import REQUEST_BYTES, Synchronisation, requests
from monarch._workspace.source import Piece, WorkspaceSource, list_workspace
from monarch._workspace.stage import Stage

Tree = dict[str, tuple[int, int, bytes | str]]


def tree(top: Path) -> Tree:
    """Mode, time and content of all below; not of `top`, whose time a stage changes."""
    out: Tree = {}
    for path in sorted(top.rglob("*")):
        found = path.lstat()
        content: bytes | str = b""
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = path.read_bytes()
        time = 0 if path.is_symlink() else found.st_mtime_ns
        out[str(path.relative_to(top))] = (found.st_mode, time, content)
    return out


class Local:
    """Stands for a WorkspaceSource that is asked over messages."""

    def __init__(self, source: WorkspaceSource) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        method = getattr(type(self._source), name)._method
        return Called(lambda argument: method(self._source, argument))


@dataclasses.dataclass
class Called:
    function: Callable[[Any], Any]

    def call_one(self, argument: Any) -> Any:
        result = self.function(argument)
        return dataclasses.make_dataclass("Done", [], namespace={"get": lambda self: result})()


class NotCancelled:
    cancelled = False


def synchronise(root: Path, dirs: dict[Path, str], source: type[WorkspaceSource] = WorkspaceSource) -> None:
    listing, files = list_workspace(dirs)
    Synchronisation(listing, Local(source(files)), os.path.realpath(root), NotCancelled()).run()  # type: ignore[arg-type]


def fill(top: Path) -> None:
    """All kinds of things."""
    (top / "package" / "deep").mkdir(parents=True)
    (top / "package" / "code.py").write_text("x = 1\n")
    (top / "package" / "deep" / "data").write_bytes(os.urandom(3000))
    (top / "empty").mkdir(mode=0o750)
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    (top / "nothing").touch()
    (top / "link").symlink_to("package/code.py")
    (top / "away").symlink_to("/nowhere/at/all")
    (top / "odd \udcff\n name").write_text("odd")
    os.utime(top / "run.sh", ns=(1, 1234567890123456789))
    os.utime(top / "empty", ns=(1, 1000000000000000001))
    (top / "locked").mkdir()
    (top / "locked" / "file").write_text("in a directory that cannot be written to")
    (top / "locked").chmod(0o555)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    fill(tmp_path / "source")
    return tmp_path / "source"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def test_a_tree_is_copied_with_permissions_times_and_links(source: Path, root: Path) -> None:
    synchronise(root, {source: ""})
    assert tree(root) == tree(source)
    synchronise(root, {source: "at/some/place"})
    assert tree(root / "at" / "some" / "place") == tree(source)


def test_what_is_neither_file_directory_nor_link_is_left_out(source: Path, root: Path) -> None:
    os.mkfifo(source / "pipe")
    synchronise(root, {source: "x"})
    assert not (root / "x" / "pipe").exists()


def change(source: Path) -> None:
    """Each kind of change once."""
    (source / "package" / "code.py").write_text("x = 2\n")
    (source / "new").mkdir()
    (source / "new" / "file").write_text("new")
    (source / "new" / "link").symlink_to("file")
    (source / "locked" / "file").write_text("changed")
    (source / "empty").rmdir()
    (source / "empty").write_text("a file now")
    (source / "run.sh").chmod(0o700)
    (source / "link").unlink()
    (source / "link").mkdir()
    (source / "away").unlink()
    (source / "away").symlink_to("elsewhere")
    os.utime(source / "nothing", ns=(5, 5))
    (source / "package" / "deep" / "data").unlink()
    (source / "package" / "deep").rmdir()
    (source / "package" / "deep").symlink_to("code.py")


def test_a_copy_follows_all_kinds_of_changes(source: Path, root: Path) -> None:
    synchronise(root, {source: "x"})
    change(source)
    (root / "x" / "extra").mkdir(mode=0o555)
    (root / "x" / "extra.txt").write_text("extra")
    (root / "beside").write_text("not in the target")
    synchronise(root, {source: "x"})
    assert tree(root / "x") == tree(source)
    assert sorted(os.listdir(root)) == ["beside", "x"]


def test_equal_files_are_not_copied(source: Path, root: Path) -> None:
    synchronise(root, {source: "x"})
    before = (root / "x" / "package" / "code.py").stat().st_ino
    (source / "run.sh").write_text("#!/bin/bash\n")
    os.utime(source / "package" / "code.py", ns=(7, 7))  # Another time, the same content.

    class Strict(WorkspaceSource):
        def _read(self, piece: Piece) -> bytes | None:
            assert self._files[piece.number].endswith("run.sh"), self._files[piece.number]
            return super()._read(piece)

    synchronise(root, {source: "x"}, Strict)
    assert (root / "x" / "package" / "code.py").stat().st_ino == before
    assert tree(root / "x") == tree(source)


def test_a_change_of_neither_size_nor_time_of_the_second_is_seen(source: Path, root: Path) -> None:
    synchronise(root, {source: "x"})
    found = (source / "run.sh").stat()
    (source / "run.sh").write_text("#!/bin/ab\n")
    os.utime(source / "run.sh", ns=(1, found.st_mtime_ns + 1))
    synchronise(root, {source: "x"})
    assert (root / "x" / "run.sh").read_text() == "#!/bin/ab\n"


def test_directories_may_go_into_each_other(tmp_path: Path, root: Path) -> None:
    for name in ("outer", "inner"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
    for _ in range(2):
        (root / "sub" / "b").mkdir(parents=True, exist_ok=True)
        (root / "sub" / "b" / "extra").touch()
        synchronise(root, {tmp_path / "outer": "", tmp_path / "inner": "sub/b"})
        assert [name for name, (mode, _, _) in tree(root).items() if stat.S_ISREG(mode)] == [
            "outer",
            "sub/b/inner",
        ]


def test_a_place_that_is_a_file_and_a_directory_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "sub").touch()
    with pytest.raises(ValueError, match="'sub'"):
        list_workspace({tmp_path / "a": "", tmp_path / "b": "sub/b"})


@pytest.mark.parametrize("place", ["..", "a/../../b", "/etc", STAGE, f"{STAGE}/new"])
def test_places_outside_the_workspace_directory_are_refused(source: Path, place: str) -> None:
    with pytest.raises(ValueError, match="workspace"):
        list_workspace({source: place})


def test_a_local_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError, match="missing"):
        list_workspace({tmp_path / "missing": ""})
    with pytest.raises(NotADirectoryError, match="file"):
        list_workspace({tmp_path / "file": ""})


# --- links, and directories in each other ---


def test_links_in_the_copy_are_replaced_and_not_followed(source: Path, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "code.py").write_text("mine")
    (root / "x").mkdir()
    (root / "x" / "package").symlink_to(outside)
    (root / "x" / "run.sh").symlink_to(outside / "code.py")
    (root / "x" / "extra").symlink_to(outside)
    synchronise(root, {source: "x"})
    assert tree(root / "x") == tree(source)
    assert (outside / "code.py").read_text() == "mine"


@pytest.mark.parametrize("place", ["x", "x/y"])
def test_a_target_behind_a_link_is_refused(source: Path, root: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "outside").mkdir()
    (root / "x").symlink_to(tmp_path / "outside")
    with pytest.raises(RuntimeError, match=r"root/x is in the way: it is a link"):
        synchronise(root, {source: place})
    assert not os.listdir(tmp_path / "outside")


def test_a_directory_is_no_copy_of_itself_or_of_what_is_around_it(source: Path) -> None:
    before = tree(source)
    for root, dirs in (
        (source, {source: ""}),
        (source.parent, {source: ""}),
        (source / "package", {source: ""}),
        (source / "package", {source: "not/yet/there"}),
        (source, {source / "package": "", source / "locked": "other"}),
    ):
        with pytest.raises(RuntimeError, match="contains a directory of the workspace"):
            synchronise(root, dirs)
    link = source.parent / "alias"
    link.symlink_to(source)
    with pytest.raises(RuntimeError, match="contains a directory of the workspace"):
        synchronise(link, {source: ""})
    assert tree(source) == before


def test_the_same_numbers_on_another_machine_mean_nothing(source: Path, root: Path) -> None:
    listing, files = list_workspace({source: "x"})
    there = [[(found.st_dev, found.st_ino)] for found in [os.stat(root)]]
    listing = listing._replace(sources=there)
    with pytest.raises(RuntimeError, match="contains"):
        Synchronisation(listing, Local(WorkspaceSource(files)), str(root), NotCancelled()).run()  # type: ignore[arg-type]
    other = listing._replace(boot="another")
    Synchronisation(other, Local(WorkspaceSource(files)), str(root), NotCancelled()).run()  # type: ignore[arg-type]
    assert tree(root / "x") == tree(source)


# --- files that change meanwhile ---


class Changing(WorkspaceSource):
    """Whose code.py is written to just before it is read, so many times."""

    left = 1

    def _read(self, piece: Piece) -> bytes | None:
        path = self._files[piece.number]
        if path.endswith("code.py") and Changing.left:
            Changing.left -= 1
            with open(path, "a", encoding="ascii") as file:
                file.write("# more\n")
        return super()._read(piece)


def test_a_file_that_changes_while_it_is_read_is_read_again(source: Path, root: Path) -> None:
    Changing.left = 2
    synchronise(root, {source: "x"}, Changing)
    assert Changing.left == 0
    assert tree(root / "x") == tree(source)


def test_a_file_that_never_rests_fails_and_is_named(source: Path, root: Path) -> None:
    synchronise(root, {source: "x"})
    before = tree(root)
    (source / "run.sh").write_text("changed")
    (source / "package" / "code.py").write_text("changed")
    Changing.left = 1000
    with pytest.raises(RuntimeError, match=r"again and again .* x/package/code.py"):
        synchronise(root, {source: "x"}, Changing)
    assert tree(root) == before


def test_what_vanishes_meanwhile_is_not_in_the_copy(source: Path, root: Path) -> None:
    synchronise(root, {source: "x"})
    (source / "run.sh").write_text("changed")
    (source / "package" / "code.py").write_text("changed")

    class Vanishing(WorkspaceSource):
        def _read(self, piece: Piece) -> bytes | None:
            (source / "package" / "code.py").unlink(missing_ok=True)
            return super()._read(piece)

    synchronise(root, {source: "x"}, Vanishing)
    assert not (root / "x" / "package" / "code.py").exists()
    assert (root / "x" / "run.sh").read_text() == "changed"


# --- failures ---


@pytest.fixture
def fail_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """Makes the n-th change of a tree fail; the list counts them."""
    count: list[int] = [0, 0]

    def wrap(name: str) -> None:
        whole = getattr(Stage, name)

        def counted(self: Stage, *args: Any) -> Any:
            count[0] += 1
            if count[0] == count[1]:
                raise OSError(28, "No space left on device", name)
            return whole(self, *args)

        monkeypatch.setattr(Stage, name, counted)

    for name in ("displace", "place", "make_directory", "set_attributes"):
        wrap(name)

    def arm(number: int) -> list[int]:
        count[:] = [0, number]
        return count

    return arm


def test_a_failure_at_any_change_leaves_the_old_tree_whole(
    source: Path, root: Path, fail_at: Callable[[int], list[int]]
) -> None:
    synchronise(root, {source: "x"})
    (root / "x" / "extra").mkdir()
    (root / "x" / "extra" / "file").touch()
    before = tree(root)
    change(source)
    number = 1
    while True:
        count = fail_at(number)
        try:
            synchronise(root, {source: "x"})
        except OSError as error:
            assert error.errno == 28
        else:
            break
        assert tree(root) == before, number
        number += 1
    assert count[0] == number - 1 > 15
    assert tree(root / "x") == tree(source)


def test_a_failure_while_files_are_fetched_leaves_the_old_tree_whole(source: Path, root: Path) -> None:
    synchronise(root, {source: "x"})
    before = tree(root)
    change(source)

    class Failing(WorkspaceSource):
        def _read(self, piece: Piece) -> bytes | None:
            if self._files[piece.number].endswith("empty"):
                raise PermissionError(13, "Permission denied", self._files[piece.number])
            return super()._read(piece)

    with pytest.raises(PermissionError, match="empty"):
        synchronise(root, {source: "x"}, Failing)
    assert tree(root) == before


def test_what_a_killed_synchronisation_left_is_removed(source: Path, root: Path) -> None:
    for name in ("new", "old"):
        (root / STAGE / name / "deep").mkdir(parents=True)
        (root / STAGE / name / "deep" / "file").touch()
    (root / STAGE / "lock").touch()
    synchronise(root, {source: "x"})
    assert os.listdir(root) == ["x"]


def test_one_at_a_time_has_the_stage(root: Path) -> None:
    class Busy(Exception):
        pass

    def refuse() -> None:
        raise Busy

    with Stage(str(root), refuse):
        with pytest.raises(Busy), Stage(str(root), refuse):
            pass
        assert (root / STAGE / "new").is_dir()
    with Stage(str(root), refuse):
        pass
    assert not os.listdir(root)


def test_requests_are_bounded_and_cover_each_byte_once() -> None:
    sizes = [0, 1, REQUEST_BYTES, 3 * REQUEST_BYTES + 5, *[10] * 3000, 0]
    files = [Entry(stat.S_IFREG, size, 0, number=number) for number, size in enumerate(sizes)]
    seen: dict[int, int] = dict.fromkeys(range(len(sizes)), 0)

    def check() -> Iterator[int]:
        for request in requests(files):
            assert sum(piece.size for piece in request) <= REQUEST_BYTES
            for piece in request:
                assert piece.offset == seen[piece.number]
                seen[piece.number] += piece.size
                yield piece.number

    assert set(check()) == set(seen)
    assert list(seen.values()) == sizes


def test_a_directory_takes_the_place_of_a_pipe(tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    (source / "package").mkdir(parents=True)
    (source / "package" / "code.py").write_text("x = 1\n")
    root.mkdir()
    os.mkfifo(root / "package")
    synchronise(root, {source: ""})
    assert tree(root) == tree(source)


def test_a_directory_that_becomes_a_file_while_it_is_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "changing").mkdir()
    (tmp_path / "stays").touch()
    scandir = os.scandir

    def change_first(path: str) -> Any:
        if path.endswith("/changing"):
            os.rmdir(path)
            Path(path).touch()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", change_first)
    listing, _ = list_workspace({tmp_path: ""})
    assert sorted(listing.entries) == ["", "stays"]


def test_a_link_in_the_stage_leads_nowhere(tmp_path: Path) -> None:
    source, root, other = tmp_path / "source", tmp_path / "root", tmp_path / "other"
    source.mkdir()
    (source / "file").write_text("x")
    (other / "below").mkdir(parents=True)
    (other / "below").chmod(0o755)
    (root / STAGE).mkdir(parents=True)
    (root / STAGE / "new").symlink_to(other)
    synchronise(root, {source: ""})
    assert tree(root) == tree(source)
    assert stat.S_IMODE((other / "below").stat().st_mode) == 0o755
