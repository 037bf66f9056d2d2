"""HostMesh.sync_workspace: local directories are copied to the hosts of a job."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import EVENT_S, Failures
from gate import Gate, pass_gate
from monarch._actor.mock import patch_actor
from monarch._workspace.receiver import Synchronisation, WorkspaceReceiver
from monarch._workspace.source import Piece, WorkspaceSource
from monarch.actor import Actor, HostMesh, attach_to_workers, endpoint, this_host
from monarch.job import ProcessJob
from monarch.tools.config import Workspace

TRUST = "trust_all_connections"
STAGE = ".monarch-sync"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "project" / "package").mkdir(parents=True)
    (tmp_path / "project" / "package" / "code.py").write_text("x = 1\n")
    (tmp_path / "project" / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "project" / "run.sh").chmod(0o755)
    return tmp_path / "project"


@pytest.fixture
def attach(failures: Failures) -> Iterator[Callable[..., HostMesh]]:
    """A mesh of one host for each workspace directory; "" for one without. The hosts end with the test. They import
    from `project` in it."""
    jobs: list[ProcessJob] = []

    def make(*roots: Path | str) -> HostMesh:
        for root in roots:
            env = {"WORKSPACE_DIR": str(root), "PYTHONPATH": f"{root}/project"}
            jobs.append(ProcessJob({"hosts": 1}, env=env))
            jobs[-1].apply()
        return attach_to_workers(
            ca=TRUST, workers=[job._host_to_pid["hosts_0"].channel for job in jobs[-len(roots) :]]
        )

    yield make
    for job in jobs:
        job.kill()


def sync(hosts: HostMesh, *args: Any, **kwargs: Any) -> None:
    asyncio.run(asyncio.wait_for(hosts.sync_workspace(*args, **kwargs), EVENT_S))


def files(top: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path.relative_to(top)): (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(top.rglob("*"))
        if path.is_file()
    }


# --- copies ---


def test_each_host_has_the_workspace_below_its_own_directory(
    attach: Any, source: Path, tmp_path: Path
) -> None:
    roots = [tmp_path / "a", tmp_path / "b" / "not" / "there" / "yet"]
    hosts = attach(*roots)
    sync(hosts, Workspace(dirs=[source]))
    assert [files(root / "project") for root in roots] == [files(source)] * 2
    (source / "run.sh").unlink()
    (source / "new").touch()
    (roots[1] / "project" / "package" / "code.py").write_text("edited on the host")
    sync(hosts, Workspace(dirs=[source]))
    assert [files(root / "project") for root in roots] == [files(source)] * 2
    assert [os.listdir(root) for root in roots] == [["project"]] * 2


def test_a_mapping_says_where_each_directory_goes(attach: Any, source: Path, tmp_path: Path) -> None:
    hosts = attach(tmp_path / "root")
    sync(hosts, Workspace(dirs={source: "", source / "package": "lib/p"}))
    assert sorted(files(tmp_path / "root")) == ["lib/p/code.py", "package/code.py", "run.sh"]


def test_hosts_may_share_the_directory_and_be_there_twice(attach: Any, source: Path, tmp_path: Path) -> None:
    hosts = attach(tmp_path / "root", tmp_path / "root")
    sync(hosts, Workspace(dirs=[source]))
    assert files(tmp_path / "root" / "project") == files(source)


def test_synchronisations_may_run_at_the_same_time(attach: Any, source: Path, tmp_path: Path) -> None:
    hosts = attach(tmp_path / "root")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("other")

    async def both() -> None:
        dirs = [source, tmp_path / "other"] * 2
        await asyncio.gather(*(hosts.sync_workspace(Workspace(dirs=[each])) for each in dirs))

    asyncio.run(asyncio.wait_for(both(), EVENT_S))
    assert files(tmp_path / "root" / "project") == files(source)
    assert files(tmp_path / "root" / "other") == files(tmp_path / "other")
    assert sorted(os.listdir(tmp_path / "root")) == ["other", "project"]


def _peak_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def test_a_large_file_takes_little_memory(attach: Any, source: Path, tmp_path: Path) -> None:
    size = 96 << 20
    block = os.urandom(1 << 20)
    with open(source / "large", "wb") as file:
        for _ in range(size >> 20):
            file.write(block)
    hosts = attach(tmp_path / "root")
    hosts.initialized.get(timeout=EVENT_S)
    Path("/proc/self/clear_refs").write_text("5")  # The peak counts anew.
    before = _peak_kib()
    sync(hosts, Workspace(dirs=[source]))
    assert (tmp_path / "root" / "project" / "large").stat().st_size == size
    assert (_peak_kib() - before) << 10 < size // 2
    assert (tmp_path / "root" / "project" / "large").read_bytes()[-len(block) :] == block


def test_nothing_to_copy_asks_no_host(attach: Any) -> None:
    sync(attach(""), Workspace.null())


# --- refusals ---


def test_a_slice_a_copy_and_this_host_cannot_synchronise(attach: Any, source: Path, tmp_path: Path) -> None:
    hosts = attach(tmp_path / "a", tmp_path / "b")
    hosts.initialized.get(timeout=EVENT_S)
    for reference in (hosts.slice(hosts=0), pickle.loads(pickle.dumps(hosts)), this_host()):
        with pytest.raises(RuntimeError, match="cannot call sync_workspace on a sliced host mesh"):
            sync(reference, Workspace(dirs=[source]))
    sync(hosts.slice(hosts=slice(0, 2)), Workspace(dirs=[source]))  # All of it.
    assert (tmp_path / "b" / "project").is_dir()


def test_what_is_wrong_here_is_said_before_anything_is_copied(
    attach: Any, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = attach(tmp_path / "root")
    with pytest.raises(TypeError, match="Workspace"):
        sync(hosts, str(source))
    with pytest.raises(ValueError, match=r"\.\./up"):
        sync(hosts, Workspace(dirs={source: "../up"}))
    with pytest.raises(FileNotFoundError, match="missing"):
        sync(hosts, Workspace(dirs=[source, tmp_path / "missing"]))
    monkeypatch.setenv("CONDA_PREFIX", "/opt/conda")
    with pytest.raises(NotImplementedError, match="conda"):
        sync(hosts, Workspace(dirs=[source]), conda=True)
    monkeypatch.delenv("CONDA_PREFIX")
    assert not (tmp_path / "root").exists()
    sync(hosts, Workspace(dirs=[source]), conda=True)  # There is none.
    hosts.shutdown().get(timeout=EVENT_S)
    with pytest.raises(RuntimeError, match="HostMesh has already been shut down"):
        sync(hosts, Workspace(dirs=[source]))


# --- failures ---


def test_a_host_that_fails_is_named_with_its_directory(attach: Any, source: Path, tmp_path: Path) -> None:
    hosts = attach(tmp_path / "root", "/proc/nothing/here", "", "relative")
    with pytest.raises(RuntimeError, match="sync_workspace failed") as caught:
        sync(hosts, Workspace(dirs=[source]))
    text = str(caught.value)
    name = socket.gethostname()
    assert "host 0" not in text
    assert f"host 1, {name}:/proc/nothing/here: [Errno 2]" in text
    assert f"host 2, {name}:: WORKSPACE_DIR is not set" in text
    assert f"host 3, {name}:relative: WORKSPACE_DIR has to be an absolute path" in text
    assert files(tmp_path / "root" / "project") == files(source)


def test_a_copy_into_the_workspace_itself_is_refused(attach: Any, source: Path) -> None:
    before = files(source)
    with pytest.raises(RuntimeError, match=r"host 0, .*contains a directory of the workspace"):
        sync(attach(source.parent), Workspace(dirs=[source]))
    assert files(source) == before
    assert os.listdir(source.parent) == ["project"]


class KilledReceiver(WorkspaceReceiver):
    """Whose process is killed before it changes anything in the tree, with the new files on the stage."""

    def __init__(self) -> None:
        Synchronisation._apply = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]


def test_a_host_whose_process_is_killed_keeps_the_old_tree_and_fails_only_the_call(
    attach: Any, source: Path, tmp_path: Path, failures: Failures
) -> None:
    hosts = attach(tmp_path / "root")
    sync(hosts, Workspace(dirs=[source]))
    before = files(tmp_path / "root")
    (source / "run.sh").write_text("changed")
    with (
        patch_actor(WorkspaceReceiver, KilledReceiver),
        pytest.raises(RuntimeError, match=r"host 0, (?s:.)*SIGKILL"),
    ):
        sync(hosts, Workspace(dirs=[source]))
    assert {name: file for name, file in files(tmp_path / "root").items() if STAGE not in name} == before
    assert (tmp_path / "root" / STAGE / "new").is_dir()
    sync(hosts, Workspace(dirs=[source]))
    assert files(tmp_path / "root" / "project") == files(source)
    assert os.listdir(tmp_path / "root") == ["project"]
    assert not failures.seen


class FailingSource(WorkspaceSource):
    def _read(self, piece: Piece) -> bytes | None:
        raise PermissionError(13, "Permission denied", self._files[piece.number])


def test_a_file_that_cannot_be_read_here_is_named(attach: Any, source: Path, tmp_path: Path) -> None:
    hosts = attach(tmp_path / "root")
    with (
        patch_actor(WorkspaceSource, FailingSource),
        pytest.raises(RuntimeError, match=r"root: in the caller: \[Errno 13\] .*project/"),
    ):
        sync(hosts, Workspace(dirs=[source]))
    assert not os.listdir(tmp_path / "root")


class GatedSource(WorkspaceSource):
    """Says that it is asked, and waits."""

    def _read(self, piece: Piece) -> bytes | None:
        Path(os.environ["TEST_ASKED"]).write_bytes(b"!")
        pass_gate(os.environ["TEST_GATE"])
        return super()._read(piece)


def test_a_synchronisation_that_is_cancelled_leaves_the_old_tree(
    attach: Any, source: Path, tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Gate(tmp_path / "asked")
    monkeypatch.setenv("TEST_ASKED", asked.path)
    monkeypatch.setenv("TEST_GATE", gate.path)
    hosts = attach(tmp_path / "root")

    async def cancel() -> None:
        task = asyncio.ensure_future(hosts.sync_workspace(Workspace(dirs=[source])))
        await asyncio.to_thread(pass_gate, asked.path)
        task.cancel()
        # The hosts were told before the file comes.
        done, _ = await asyncio.wait([task], timeout=EVENT_S)
        gate.let_pass(100)
        assert done
        assert task.cancelled()

    with patch_actor(WorkspaceSource, GatedSource):
        asyncio.run(cancel())
    asked.close()
    assert not (tmp_path / "root" / "project").exists()
    sync(hosts, Workspace(dirs=[source]))
    assert files(tmp_path / "root" / "project") == files(source)
    assert os.listdir(tmp_path / "root") == ["project"]


def test_a_long_synchronisation_that_is_cancelled_ends_soon(
    attach: Any, source: Path, tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Gate(tmp_path / "asked")
    monkeypatch.setenv("TEST_ASKED", asked.path)
    monkeypatch.setenv("TEST_GATE", gate.path)
    with open(source / "large", "wb") as file:
        file.truncate(16 << 30)  # More than is copied in the time below, and sparse.
    hosts = attach(tmp_path / "root")

    async def cancel() -> float:
        task = asyncio.ensure_future(hosts.sync_workspace(Workspace(dirs=[source])))
        await asyncio.to_thread(pass_gate, asked.path)
        task.cancel()
        gate.let_pass(5000)
        started = time.monotonic()
        await asyncio.wait([task], timeout=EVENT_S)
        assert task.cancelled()
        return time.monotonic() - started

    with patch_actor(WorkspaceSource, GatedSource):
        assert (
            asyncio.run(cancel()) < 5
        )  # Less than stop_actor_timeout, for which a receiver at work is waited for.
    asked.close()
    assert os.listdir(tmp_path / "root") == []


# --- reloading ---


class Importer(Actor):
    @endpoint
    def value(self, module: str) -> tuple[int, float]:
        """What the module says, and when it was loaded."""
        import importlib

        found: Any = importlib.import_module(module)
        return found.x, found.loaded


def _write_module(path: Path, x: int, more: str = "") -> None:
    path.write_text(f"import time\nloaded = time.monotonic()\nx = {x}\n{more}")


def test_changed_modules_are_reloaded_where_they_are_loaded(
    attach: Any, source: Path, tmp_path: Path
) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    hosts = attach(*roots)
    _write_module(source / "ws_base.py", 1)
    _write_module(source / "ws_user.py", 1, "from ws_base import x as base\nx = 10 * base\n")
    _write_module(source / "ws_other.py", 5)
    workspace = Workspace(dirs=[source])
    sync(hosts, workspace)
    importers = hosts.spawn_procs({"gpus": 2}).spawn("importers", Importer)

    def values(module: str) -> list[int]:
        return [value for value, _ in importers.value.call(module).get(timeout=EVENT_S).values()]

    assert values("ws_user") == [10] * 4
    before = list(importers.value.call("ws_other").get(timeout=EVENT_S).values())
    sync(hosts, workspace, auto_reload=True)
    assert list(importers.value.call("ws_other").get(timeout=EVENT_S).values()) == before

    # Within one second, and of the same size.
    _write_module(source / "ws_base.py", 2)
    _write_module(source / "ws_user.py", 1, "from ws_base import x as base\nx = 20 * base\n")
    _write_module(source / "ws_new.py", 7)
    sync(hosts, workspace)
    assert values("ws_user") == [10] * 4
    sync(hosts, workspace, auto_reload=True)
    assert values("ws_user") == [40] * 4
    assert values("ws_new") == [7] * 4
    assert list(importers.value.call("ws_other").get(timeout=EVENT_S).values()) == before

    # The order is that of the imports, also after a part was reloaded.
    for x in (3, 4):
        _write_module(source / "ws_base.py", x)
        if x == 4:
            _write_module(source / "ws_user.py", 1, "from ws_base import x as base\nx = 30 * base\n")
        sync(hosts, workspace, auto_reload=True)
    assert values("ws_user") == [120] * 4


def test_a_module_that_cannot_be_reloaded_is_named_and_tried_again(
    attach: Any, source: Path, tmp_path: Path
) -> None:
    hosts = attach(tmp_path / "root")
    _write_module(source / "ws_base.py", 1)
    workspace = Workspace(dirs=[source])
    sync(hosts, workspace)
    importers = hosts.spawn_procs().spawn("importers", Importer)
    assert importers.value.call("ws_base").get(timeout=EVENT_S).item(hosts=0)[0] == 1
    (source / "ws_base.py").write_text("x = \n")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="ws_base: SyntaxError"):
            sync(hosts, workspace, auto_reload=True)
    _write_module(source / "ws_base.py", 3)
    sync(hosts, workspace, auto_reload=True)
    assert importers.value.call("ws_base").get(timeout=EVENT_S).item(hosts=0)[0] == 3


class Dying(Actor):
    @endpoint
    def die(self) -> None:
        os._exit(0)


def test_processes_that_have_ended_do_not_disturb_a_reload(attach: Any, source: Path, tmp_path: Path) -> None:
    hosts = attach(tmp_path / "root")
    dying = hosts.spawn_procs({"gpus": 2}).spawn("dying", Dying)
    with pytest.raises(RuntimeError):
        dying.slice(gpus=0).die.call().get(timeout=EVENT_S)
    sync(hosts, Workspace(dirs=[source]), auto_reload=True)
    assert files(tmp_path / "root" / "project") == files(source)
