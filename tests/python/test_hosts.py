"""Meshes of hosts and of processes, as far as one host goes."""

from __future__ import annotations

import functools
import os
import pickle
from typing import Any

import pytest
from conftest import EVENT_S, Failures
from monarch._actor.proc_mesh import (
    get_active_proc_meshes,
    register_proc_mesh_spawn_callback,
    unregister_proc_mesh_spawn_callback,
)
from monarch._actor.setup_actor import SetupActor
from monarch.actor import (
    ActorError,
    ProcMesh,
    Shape,
    Slice,
    context,
    default_bootstrap_cmd,
    this_host,
    this_proc,
)
from sample_actors import Probe


def test_this_host_has_no_dimensions_and_is_the_host_of_this_proc() -> None:
    assert this_host().extent.labels == []
    assert len(this_host()) == 1
    assert this_host() is this_proc().host_mesh
    assert this_host().initialized.get() is True
    assert not this_host().stream_logs
    assert not this_host().is_fake_in_process
    assert this_host().region.slice() == Slice(offset=0, sizes=[], strides=[])


def test_this_host_is_a_reference() -> None:
    with pytest.raises(
        RuntimeError, match="cannot shut down `HostMesh` that is a reference instead of owned"
    ):
        this_host().shutdown().get()
    with pytest.raises(RuntimeError, match="cannot stop `HostMesh`"):
        this_host().stop().get()


def test_refusals_of_references_come_from_the_future_and_not_the_call() -> None:
    this_host().shutdown()
    this_host().stop()


def test_host_meshes_are_equal_by_host_region_and_interpreter(spawn_procs: Any) -> None:
    probe = spawn_procs().spawn("probe", Probe)
    assert probe.host.call_one().get() == this_host()
    assert pickle.loads(pickle.dumps(this_host())) == this_host()
    assert this_host() != this_host().with_python_executable("/elsewhere/python")
    assert this_host() != this_host()._new_with_shape(Shape(["h"], Slice(offset=0, sizes=[1], strides=[1])))


def test_slicing_with_the_full_shape_is_the_same_object() -> None:
    assert this_host().slice() is this_host()


def test_per_host_names_no_dimension_of_the_hosts() -> None:
    hosts = this_host()._new_with_shape(Shape(["hosts"], Slice(offset=0, sizes=[1], strides=[1])))
    with pytest.raises(ValueError, match="the same name"):
        hosts.spawn_procs({"hosts": 2})


@pytest.mark.parametrize("per_host", [{"gpus": 0}, {"gpus": -1}, {"gpus": 1.5}, {3: 1}])
def test_per_host_maps_names_to_sizes(per_host: Any) -> None:
    with pytest.raises(ValueError, match="sizes of at least 1"):
        this_host().spawn_procs(per_host)


def test_proc_bind_has_an_entry_for_each_process_of_a_host() -> None:
    with pytest.raises(ValueError, match=r"proc_bind length \(1\) must equal procs_per_host \(4\)"):
        this_host().spawn_procs({"gpus": 4}, proc_bind=[{"cpunodebind": "0"}])


def test_proc_bind_binds_each_process(spawn_procs: Any) -> None:
    own = sorted(os.sched_getaffinity(0))
    if len(own) < 2:
        pytest.skip("needs two processors")
    chosen = [own[0], own[1]]
    procs = spawn_procs({"gpus": 2}, proc_bind=[{"cpus": str(cpu)} for cpu in chosen])
    cpus = procs.spawn("probe", Probe).cpus.call().get()
    assert list(cpus.values()) == [[cpu] for cpu in chosen]


def test_a_bootstrap_command_for_all_adds_to_the_environment(spawn_procs: Any) -> None:
    command = default_bootstrap_cmd().with_env({"MONARCH_TEST_PLACE": "here"})
    changed = spawn_procs(bootstrap_command=command).spawn("probe", Probe)
    plain = spawn_procs().spawn("probe", Probe)
    assert changed.variable.call_one("MONARCH_TEST_PLACE").get() == "here"
    assert changed.variable.call_one("PATH").get() == os.environ.get("PATH")
    assert plain.variable.call_one("MONARCH_TEST_PLACE").get() is None


def test_a_bootstrap_command_can_depend_on_the_place(spawn_procs: Any) -> None:
    procs = spawn_procs(
        {"gpus": 2},
        bootstrap_command=lambda point: default_bootstrap_cmd().with_env({"GPU": str(point["gpus"])}),
    )
    assert list(procs.spawn("probe", Probe).variable.call("GPU").get().values()) == ["0", "1"]


def test_another_interpreter_is_used_and_inherited_by_nested_spawns(spawn_procs: Any, tmp_path: Any) -> None:
    import sys

    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nexport WRAPPER_PID=$$\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    procs = this_host().with_python_executable(str(wrapper)).spawn_procs()
    try:
        probe = procs.spawn("probe", Probe)
        outer = probe.variable.call_one("WRAPPER_PID").get()
        nested = probe.spawn_nested.call_one().get()
        inner = list(nested.variable.call("WRAPPER_PID").get().values())
        assert outer == str(probe.pid.call_one().get())
        assert inner == [str(pid) for pid in nested.pid.call().get().values()]
        assert spawn_procs().spawn("probe", Probe).variable.call_one("WRAPPER_PID").get() is None
    finally:
        procs.stop().get()


def test_a_nested_spawn_makes_processes_that_the_actor_owns(spawn_procs: Any) -> None:
    probe = spawn_procs().spawn("probe", Probe)
    nested = probe.spawn_nested.call_one().get()
    pids = {*nested.pid.call().get().values(), probe.pid.call_one().get(), os.getpid()}
    assert len(pids) == 4


def test_this_proc_in_an_actor_is_the_slice_it_was_spawned_on(spawn_procs: Any) -> None:
    probes = spawn_procs({"gpus": 2}).spawn("probes", Probe)
    for point, proc in probes.proc.call().get():
        assert len(proc) == 1
        assert proc._ndslice.offset == point.rank
    here = probes.slice(gpus=1).spawn_here.call_one().get()
    assert here.pid.call_one().get() == probes.slice(gpus=1).pid.call_one().get()


def test_this_proc_in_the_client_is_the_client() -> None:
    assert this_proc().spawn("probe", Probe).pid.call_one().get() == os.getpid()


def test_host_mesh_is_there_for_one_process(spawn_procs: Any) -> None:
    procs = spawn_procs({"gpus": 2})
    assert procs.slice(gpus=1).host_mesh == this_host()
    with pytest.raises(NotImplementedError, match="one process"):
        procs.host_mesh  # noqa: B018


def test_a_spawn_callback_gets_each_new_mesh(spawn_procs: Any) -> None:
    first: list[ProcMesh] = []
    second: list[ProcMesh] = []
    callbacks = [first.append, second.append]
    for callback in callbacks:
        register_proc_mesh_spawn_callback(callback)
    try:
        mesh = spawn_procs()
    finally:
        for callback in callbacks:
            unregister_proc_mesh_spawn_callback(callback)
    assert [seen is mesh for seen in first + second] == [True, True]
    spawn_procs()
    assert len(first) == 1


def test_active_meshes_are_those_that_are_not_stopped(spawn_procs: Any) -> None:
    mesh = spawn_procs()
    mesh.initialized.get()
    assert any(active is mesh for active in get_active_proc_meshes())
    mesh.stop().get()
    assert not any(active is mesh for active in get_active_proc_meshes())


def _set(name: str, value: str) -> None:
    os.environ[name] = value


async def _set_async(name: str, value: str) -> None:
    os.environ[name] = value


def _add(name: str, text: str) -> None:
    os.environ[name] = os.environ.get(name, "") + text


@pytest.mark.parametrize("setter", [_set, _set_async])
def test_the_bootstrap_function_runs_before_any_actor(spawn_procs: Any, setter: Any) -> None:
    probes = spawn_procs({"gpus": 2}, bootstrap=functools.partial(setter, "BOOTED", "yes")).spawn("p", Probe)
    assert list(probes.variable.call("BOOTED").get().values()) == ["yes", "yes"]


def _fail() -> None:
    raise RuntimeError("the bootstrap of this test")


def test_a_failed_bootstrap_function_is_the_error_of_the_mesh(failures: Failures) -> None:
    procs = this_host().spawn_procs(bootstrap=_fail)
    with pytest.raises(ActorError, match="the bootstrap of this test"):
        procs.initialized.get(timeout=EVENT_S)
    with pytest.raises(ActorError, match="the bootstrap of this test"):
        procs.spawn("probe", Probe).initialized.get(timeout=EVENT_S)


def test_start_up_functions_run_before_the_bootstrap_function(
    spawn_procs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SetupActor, "_startup", [])
    SetupActor.register_startup_function(lambda: functools.partial(_add, "ORDER", "startup "))
    SetupActor.register_startup_function(lambda: None)
    probe = spawn_procs(bootstrap=functools.partial(_add, "ORDER", "bootstrap")).spawn("p", Probe)
    assert probe.variable.call_one("ORDER").get() == "startup bootstrap"


def test_what_a_bootstrap_function_holds_is_pickled_by_the_call() -> None:
    class Unpicklable:
        def __reduce__(self) -> Any:
            raise KeyError("not this one")

    with pytest.raises(KeyError, match="not this one"):
        this_host().spawn_procs(bootstrap=functools.partial(print, Unpicklable()))


def test_names_are_normalised_and_made_unique(spawn_procs: Any) -> None:
    first = spawn_procs(name="My Procs/1")
    second = spawn_procs(name="my procs1")
    names = [mesh._core.name for mesh in (first, second)]
    assert names[0].startswith("myprocs1")
    assert names[1].startswith("myprocs1")
    assert names[0] != names[1]


def test_stopping_one_of_two_meshes_of_a_name_leaves_the_other_owned(
    spawn_procs: Any, failures: Failures
) -> None:
    first, second = spawn_procs(name="twins"), spawn_procs(name="twins")
    probe = second.spawn("probe", Probe)
    pid = probe.pid.call_one().get()
    first.stop().get()
    os.kill(pid, 9)
    assert {failure.mesh_name for failure in failures.wait(1)} <= {"probe", second._core.name}


def test_a_stop_that_nobody_looks_at_stops_nothing(spawn_procs: Any) -> None:
    procs = spawn_procs()
    probe = procs.spawn("probe", Probe)
    procs.stop()
    assert probe.pid.call_one().get() != os.getpid()


def test_stopping_twice_is_fine_and_a_later_spawn_fails(spawn_procs: Any) -> None:
    procs = spawn_procs()
    assert procs.stop().get() is None
    assert procs.stop().get() is None
    with pytest.raises(RuntimeError, match="`ProcMesh` has already been stopped"):
        procs.spawn("probe", Probe).initialized.get(timeout=EVENT_S)


def test_slices_and_unpickled_meshes_spawn_and_do_not_stop(spawn_procs: Any) -> None:
    procs = spawn_procs({"gpus": 2})
    for reference in (procs.slice(gpus=0), pickle.loads(pickle.dumps(procs))):
        with pytest.raises(ValueError, match="ProcMesh is not owned; must be stopped by an owner"):
            reference.stop()
        assert len(reference.spawn("probe", Probe).pid.call().get()) == len(reference)


async def _enter_stopped(procs: ProcMesh) -> None:
    async with procs:
        pass


def test_a_stopped_mesh_cannot_be_entered(spawn_procs: Any) -> None:
    import asyncio

    procs = spawn_procs()
    procs.stop().get()
    with pytest.raises(RuntimeError, match="`ProcMesh` has already been stopped"):
        asyncio.run(_enter_stopped(procs))


def test_to_table_shows_the_ranks(spawn_procs: Any) -> None:
    rows = spawn_procs({"a": 2, "b": 3}).to_table().splitlines()
    assert [row.split() for row in rows[1:]] == [["0", "1", "2"], ["3", "4", "5"]]


def test_sync_workspace_says_where_it_is(spawn_procs: Any) -> None:
    import asyncio

    with pytest.raises(NotImplementedError, match="HostMesh"):
        asyncio.run(spawn_procs().sync_workspace())


def test_the_client_is_its_own_context_on_all_threads() -> None:
    import threading

    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(context().actor_instance.proc))
    thread.start()
    thread.join()
    assert seen == [this_proc()]
