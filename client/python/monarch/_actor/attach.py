"""Hosts that were started by somebody else, and are joined by their addresses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from monarch._actor.future import Future
from monarch._actor.host_mesh import HostMesh
from monarch._actor.host_mesh_core import HostMeshCore, on_each_host
from monarch._actor.proc_mesh import start_in_background
from monarch._actor.process import process, set_gateway
from monarch._actor.readiness import Readiness
from monarch._actor.shape import Shape
from monarch._actor.worker_loop import check_trust
from monarch._config.layers import layers


def attach_to_workers(
    *, private_key: Any = None, ca: Any, workers: Sequence[str | Future[str]], name: str | None = None
) -> HostMesh:
    """Joins hosts on which `run_worker_loop_forever` runs, and returns their mesh, at once.

    Args:
        private_key: must be None.
        ca: must be "trust_all_connections".
        workers: the hosts' addresses, or futures of them; a host that is still being started is waited for, for at
            most the configured `mesh_attach_config_timeout`.
        name: for people.

    Returns:
        A mesh with the dimension "hosts". It is whole or not at all: if a host cannot be joined in time, `initialized`
        and all that was spawned meanwhile raise a RuntimeError that names it.
    """
    check_trust(private_key, ca)
    addresses = list(workers)
    if not addresses:
        raise ValueError("workers: at least one address is needed")
    for address in addresses:
        if not isinstance(address, (str, Future)):
            raise TypeError(f"a worker is an address or a Future of one, not {address!r}")
    process()
    core = HostMeshCore([], Readiness())
    timeout_ms = max(1, int(layers.seconds("mesh_attach_config_timeout") * 1000))
    start_in_background(lambda: _attach(core, addresses, timeout_ms))
    return HostMesh(core, Shape.row_major({"hosts": len(addresses)}), owned=True)


def _attach(core: HostMeshCore, workers: Sequence[str | Future[str]], timeout_ms: int) -> None:
    try:
        addresses = [worker.get() if isinstance(worker, Future) else worker for worker in workers]
        control = process().control()
        found = on_each_host([partial(control.attach_host, address, timeout_ms) for address in addresses])
        failed = [
            f"{address}: {getattr(result, 'message', result)}"
            for address, result in zip(addresses, found, strict=True)
            if isinstance(result, Exception)
        ]
        if failed:
            raise RuntimeError(
                f"attach failed: config push failed during attach on {len(failed)} host(s): {'; '.join(failed)}"
            )
        core.hosts += [result["host"] for result in found]
    except Exception as error:
        core.readiness.set_error(error)
    else:
        core.readiness.set_ready()


def attach(addr: str) -> None:
    """Makes this client join the session network through the host at `addr`.

    To be called before anything else of this package is used; `this_host()` remains the host that this program runs on.
    RuntimeError if the client exists already.
    """
    if not isinstance(addr, str):
        raise TypeError(f"addr is an address such as tcp://127.0.0.1:26600, not {addr!r}")
    set_gateway(addr)
