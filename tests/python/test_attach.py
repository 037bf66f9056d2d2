"""Hosts that are attached to, and jobs, which start them."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import EVENT_S, Failures, wait_gone
from monarch._actor.future import Future
from monarch.actor import (
    Actor,
    HostMesh,
    Slice,
    attach,
    attach_to_workers,
    endpoint,
    hosts_from_config,
    run_worker_loop_forever,
    this_host,
    this_proc,
)
from monarch.config import configured
from monarch.job import JobState, LoginJob, ProcessJob, ProcessState
from sample_actors import Probe

TRUST = "trust_all_connections"


class Parent(Actor):
    @endpoint
    def ask_children(self, count: int) -> set[int]:
        """Spawns actors into this process, and asks each which it runs in."""
        return {this_proc().spawn("child", Probe).pid.call_one().get() for _ in range(count)}


@pytest.fixture
def job(failures: Failures) -> Iterator[Callable[..., ProcessJob]]:
    """Makes jobs; at the end of the test they are killed."""
    jobs: list[ProcessJob] = []

    def make(hosts: int = 2, **env: str) -> ProcessJob:
        jobs.append(ProcessJob({"hosts": hosts}, env=env))
        return jobs[-1]

    yield make
    for made in jobs:
        made.kill()


def pids_of(probes: Any) -> list[int]:
    return list(probes.pid.call().get(timeout=EVENT_S).values())


def all_gone(pids: list[int]) -> bool:
    return all(wait_gone(pid, EVENT_S) for pid in pids)


# --- refusals at the call ---


@pytest.mark.parametrize("wrong", [{"ca": "file.pem"}, {"ca": None}, {"ca": TRUST, "private_key": b"key"}])
def test_only_trust_all_connections_without_a_key_is_accepted(wrong: Any) -> None:
    with pytest.raises(NotImplementedError):
        attach_to_workers(workers=["ipc://@nobody"], **wrong)
    with pytest.raises(NotImplementedError):
        run_worker_loop_forever(address="ipc://@nobody", **wrong)


def test_a_worker_does_not_listen_on_any_tcp_name() -> None:
    with pytest.raises(NotImplementedError, match=r"tcp://\*"):
        run_worker_loop_forever(address="tcp://*:2000", ca=TRUST)


@pytest.mark.parametrize(("workers", "error"), [([], ValueError), ([3], TypeError)])
def test_workers_are_addresses(workers: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        attach_to_workers(ca=TRUST, workers=workers)


def test_attach_comes_before_all_else() -> None:
    this_host()
    with pytest.raises(RuntimeError, match="client already bootstrapped"):
        attach("ipc://@nobody")


# --- attach ---


def test_attached_hosts_have_one_dimension_and_are_ready_once_all_are(job: Any) -> None:
    hosts = job(2).state(cached_path=None).hosts
    assert dict(hosts.extent) == {"hosts": 2}
    assert hosts.initialized.get(timeout=EVENT_S) is True
    assert hosts.region.slice() == Slice(offset=0, sizes=[2], strides=[1])
    assert not hosts.stream_logs


def test_a_host_that_does_not_answer_fails_the_mesh_and_is_named(job: Any, tmp_path: Any) -> None:
    made = job(1)
    made.apply()
    nobody = f"ipc://{tmp_path}/never_bound"
    with configured(mesh_attach_config_timeout="300ms"):
        hosts = attach_to_workers(ca=TRUST, workers=[made._host_to_pid["hosts_0"].channel, nobody])
    text = r"attach failed: config push failed during attach on 1 host\(s\): .*never_bound"
    with pytest.raises(RuntimeError, match=text):
        hosts.initialized.get(timeout=EVENT_S)
    with pytest.raises(RuntimeError, match=text):
        hosts.spawn_procs().initialized.get(timeout=EVENT_S)


def test_addresses_may_be_futures(job: Any) -> None:
    made = job(1)
    made.apply()
    address: Future[str] = Future._from_value(made._host_to_pid["hosts_0"].channel)
    hosts = attach_to_workers(ca=TRUST, workers=[address])
    assert hosts.initialized.get(timeout=EVENT_S) is True


def start_worker(address: str, **options: Any) -> subprocess.Popen[bytes]:
    program = f"from monarch.actor import *; run_worker_loop_forever(address={address!r}, ca={TRUST!r})"
    return subprocess.Popen([sys.executable, "-c", program], **options)


@pytest.mark.parametrize("form", ["ipc", "tcp", "alias", "fd"])
def test_a_worker_loop_serves_its_address_and_ends_with_0(failures: Any, tmp_path: Any, form: str) -> None:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    dial = f"ipc://{tmp_path}/host" if form == "ipc" else f"tcp://127.0.0.1:{port}"
    options: dict[str, Any] = {}
    address = dial
    if form == "fd":
        address = f"tcp://127.0.0.1:fd{listening.fileno()}"
        options["pass_fds"] = (listening.fileno(),)
    if form == "alias":
        address = dial = f"{dial}@tcp://0.0.0.0:{port}"
    if form != "fd":
        listening.close()
    worker = start_worker(address, cwd=tmp_path, env={**os.environ, "MONARCH_TEST_HOST": form}, **options)
    listening.close()
    try:
        hosts = attach_to_workers(ca=TRUST, workers=[dial])
        probes = hosts.spawn_procs({"gpus": 2}).spawn("probes", Probe)
        assert list(probes.variable.call("MONARCH_TEST_HOST").get(timeout=EVENT_S).values()) == [form, form]
        assert set(probes.directory.call().get().values()) == {str(tmp_path)}
        pids = pids_of(probes)
        assert hosts.shutdown().get(timeout=EVENT_S) is None
        assert worker.wait(EVENT_S) == 0
        assert all_gone(pids)
    finally:
        worker.kill()
        worker.wait()


def test_processes_are_laid_out_host_by_host(job: Any) -> None:
    hosts = job(2).state(cached_path=None).hosts
    procs = hosts.spawn_procs({"gpus": 2})
    assert dict(procs.extent) == {"hosts": 2, "gpus": 2}
    probes = procs.spawn("probes", Probe)
    for point, host in probes.host.call().get(timeout=EVENT_S):
        assert host == hosts.slice(hosts=point["hosts"])
        assert host.region.slice().offset == point["hosts"]
    part = hosts.slice(hosts=1).spawn_procs({"gpus": 2}).spawn("part", Probe)
    for _, host in part.host.call().get(timeout=EVENT_S):
        assert host == hosts.slice(hosts=1)
    assert procs.slice(hosts=1, gpus=0).host_mesh == hosts.slice(hosts=1)


def test_actors_of_all_hosts_reach_each_other_and_the_client(job: Any, spawn_procs: Any) -> None:
    probes = job(2).state(cached_path=None).hosts.spawn_procs().spawn("probes", Probe)
    here = spawn_procs().spawn("here", Probe)
    first, second = probes.slice(hosts=0), probes.slice(hosts=1)
    assert first.ask.call_one(second).get(timeout=EVENT_S) == second.pid.call_one().get()
    assert second.ask.call_one(here).get(timeout=EVENT_S) == here.pid.call_one().get()
    assert here.ask.call_one(first).get(timeout=EVENT_S) == first.pid.call_one().get()


def test_a_nested_spawn_stays_on_the_actors_host(job: Any) -> None:
    hosts = job(2, MONARCH_TEST_JOB="yes").state(cached_path=None).hosts
    probe = hosts.spawn_procs().spawn("probes", Probe).slice(hosts=1)
    nested = probe.spawn_nested.call_one().get(timeout=EVENT_S)
    assert len({*pids_of(nested), probe.pid.call_one().get()}) == 3
    for _, host in nested.host.call().get(timeout=EVENT_S):
        assert host == hosts.slice(hosts=1)


def test_an_actor_on_another_host_spawns_into_its_own_process_beside_what_the_client_spawned(
    job: Any,
) -> None:
    procs = job(2).state(cached_path=None).hosts.spawn_procs()
    pids = pids_of(procs.spawn("probes", Probe))
    for name in ("one", "two", "three"):
        children = procs.spawn(name, Parent).ask_children.call(3).get(timeout=EVENT_S)
        assert children.values() == [{pid} for pid in pids]


# --- stop and shutdown ---


def test_shutdown_ends_the_processes_and_the_workers(job: Any) -> None:
    made = job(2)
    hosts = made.state(cached_path=None).hosts
    pids = pids_of(hosts.spawn_procs({"gpus": 2}).spawn("probes", Probe))
    workers = [state.pid for state in made._host_to_pid.values()]
    assert hosts.shutdown().get(timeout=EVENT_S) is None
    assert all_gone(pids + workers)
    with pytest.raises(RuntimeError, match="HostMesh has already been shut down"):
        hosts.spawn_procs()
    with pytest.raises(RuntimeError, match="HostMesh has already been shut down"):
        hosts.shutdown().get(timeout=EVENT_S)


def test_shutdown_waits_for_pending_spawns(job: Any) -> None:
    hosts = job(1).state(cached_path=None).hosts
    hosts.spawn_procs()
    assert hosts.shutdown().get(timeout=EVENT_S) is None


def test_a_shutdown_that_nobody_looks_at_ends_nothing(job: Any) -> None:
    hosts = job(1).state(cached_path=None).hosts
    hosts.shutdown()
    hosts.stop()
    assert len(pids_of(hosts.spawn_procs().spawn("probe", Probe))) == 1


def test_stop_ends_what_the_mesh_spawned_and_keeps_the_workers(job: Any) -> None:
    made = job(2)
    first, second = made.state(cached_path=None).hosts, made.state(cached_path=None).hosts
    ended = pids_of(first.spawn_procs().spawn("first", Probe))
    kept = second.spawn_procs().spawn("second", Probe)
    pids = pids_of(kept)
    assert first.stop().get(timeout=EVENT_S) is None
    assert all_gone(ended)
    assert pids_of(kept) == pids
    again = made.state(cached_path=None).hosts
    assert len(pids_of(again.spawn_procs().spawn("again", Probe))) == 2


def test_slices_and_unpickled_meshes_do_not_end_hosts(job: Any) -> None:
    hosts = job(2).state(cached_path=None).hosts
    for reference in (hosts.slice(hosts=0), pickle.loads(pickle.dumps(hosts))):
        with pytest.raises(RuntimeError, match="cannot shut down `HostMesh` that is a reference"):
            reference.shutdown().get(timeout=EVENT_S)
        with pytest.raises(RuntimeError, match="cannot stop `HostMesh`"):
            reference.stop().get(timeout=EVENT_S)
    assert pickle.loads(pickle.dumps(hosts)) == hosts


async def _use_and_leave(hosts: HostMesh) -> None:
    async with hosts as entered:
        await entered.spawn_procs().spawn("probe", Probe).pid.call()
    async with hosts:
        pass


def test_leaving_a_with_block_shuts_down_and_it_cannot_be_entered_again(job: Any) -> None:
    hosts = job(1).state(cached_path=None).hosts
    with pytest.raises(RuntimeError, match="HostMesh has already been shut down"):
        asyncio.run(_use_and_leave(hosts))


def test_hosts_from_config_gives_two_local_hosts(failures: Any) -> None:
    hosts = hosts_from_config("any")
    assert dict(hosts.extent) == {"hosts": 2}
    assert len(pids_of(hosts.spawn_procs().spawn("probes", Probe))) == 2
    assert hosts.shutdown().get(timeout=EVENT_S) is None


# --- before the first use ---

_ATTACHES_FIRST = """
import sys
from monarch.actor import *
attach(sys.argv[1])
assert this_host() is this_proc().host_mesh
hosts = attach_to_workers(ca="trust_all_connections", workers=[sys.argv[1]])
print(hosts.initialized.get(timeout=20), hosts == this_host())
"""


def test_attach_joins_at_the_first_use_and_this_host_stays_local(job: Any, run_python: Any) -> None:
    made = job(1)
    made.apply()
    done = run_python("-c", _ATTACHES_FIRST, made._host_to_pid["hosts_0"].channel)
    assert done.out.split() == ["True", "False"], done.err


_TRANSPORTS = """
from monarch.actor import *
enable_transport("tcp")
enable_transport(ChannelTransport.TcpWithHostname)
try:
    enable_transport("ipc")
except RuntimeError as error:
    print("second:", error)
this_host()
enable_transport("tcp")
try:
    enable_transport("ipc")
except RuntimeError as error:
    print("late:", error)
"""


def test_a_transport_is_chosen_once_and_before_the_first_use(run_python: Any) -> None:
    done = run_python("-W", "ignore", "-c", _TRANSPORTS)
    assert [line.split(":")[0] for line in done.out.splitlines()] == ["second", "late"], done.err


# --- jobs ---


def test_a_job_is_active_between_apply_and_kill(job: Any) -> None:
    made = job(2)
    assert not made.active
    made.apply()
    first = made.apply_id
    made.apply()
    assert made.apply_id == first
    pids = [state.pid for state in made._host_to_pid.values()]
    assert made.can_run(ProcessJob({"hosts": 2}))
    assert not made.can_run(ProcessJob({"hosts": 3}))
    folder = made._tmpdir
    made.kill()
    assert not made.active
    assert not os.path.exists(folder)
    assert all_gone(pids)


def test_to_kill_a_job_is_no_failure_of_what_was_spawned_on_its_hosts(job: Any, failures: Failures) -> None:
    made = job(2)
    hosts = made.state(cached_path=None).hosts
    procs = hosts.spawn_procs()
    probes = procs.spawn("probes", Probe)
    pids = pids_of(probes)
    starting = hosts.spawn_procs({"gpus": 2}).spawn("starting", Probe)
    other_python = hosts.slice(hosts=0).with_python_executable(sys.executable)
    pids += pids_of(other_python.spawn_procs().spawn("probes", Probe))
    made.kill()
    assert all_gone(pids)
    for mesh in (probes, starting):
        with pytest.raises(RuntimeError):
            mesh.pid.call().get(timeout=EVENT_S)
    for given_back in (hosts, other_python):
        with pytest.raises(RuntimeError, match="HostMesh has already been shut down"):
            given_back.spawn_procs()
    # A host that goes unannounced is one, and comes last.
    other = job(1)
    lost = other.state(cached_path=None).hosts.spawn_procs(name="lost")
    pid = pids_of(lost.spawn("lost", Probe))[0]
    os.kill(other._host_to_pid["hosts_0"].pid, signal.SIGKILL)
    assert wait_gone(pid, EVENT_S)
    assert all(failure.mesh_name.startswith("lost") for failure in failures.wait())


def test_a_state_has_an_attribute_for_each_mesh() -> None:
    state = JobState({"a": this_host()})
    assert state.a is this_host()
    with pytest.raises(AttributeError, match="no mesh 'b'; it has a"):
        state.b  # noqa: B018


def test_what_jobs_do_not_have_yet_says_so() -> None:
    with pytest.raises(NotImplementedError, match="SlurmJob"):
        from monarch.job import SlurmJob  # noqa: F401
    with pytest.raises(RuntimeError, match="script"):
        ProcessJob({"hosts": 1}).apply("script.py")


class LocalLogin(LoginJob):
    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def _start_host(self, host: str) -> ProcessState:
        address = f"ipc://{self.folder}/{host}"
        self.started.append(start_worker(address, start_new_session=True))
        return ProcessState(self.started[-1].pid, address)


def test_a_login_job_starts_a_worker_on_each_host(failures: Any, tmp_path: Any) -> None:
    job = LocalLogin(str(tmp_path))
    job.add_mesh("hosts", ["one", "two"])
    try:
        hosts = job.state(cached_path=None).hosts
        assert len(pids_of(hosts.spawn_procs().spawn("probes", Probe))) == 2
        assert hosts.shutdown().get(timeout=EVENT_S) is None
    finally:
        job.kill()
        for worker in job.started:
            worker.wait(EVENT_S)


def test_a_login_job_starts_one_worker_on_a_host_of_two_meshes(failures: Any, tmp_path: Any) -> None:
    job = LocalLogin(str(tmp_path))
    job.add_mesh("one", ["shared"])
    job.add_mesh("other", ["shared"])
    try:
        state = job.state(cached_path=None)
        assert len(job.started) == 1
        for hosts in (state.one, state.other):
            assert len(pids_of(hosts.spawn_procs().spawn("probes", Probe))) == 1
        assert state.one.shutdown().get(timeout=EVENT_S) is None
    finally:
        job.kill()
        for worker in job.started:
            worker.wait(EVENT_S)
