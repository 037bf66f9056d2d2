"""Actors of which there is one for each name, in the client's process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from monarch import _runtime
from monarch._actor.actor import Actor
from monarch._actor.actor_mesh import ActorMesh, ActorMeshCore
from monarch._actor.context import context
from monarch._actor.endpoint import endpoint
from monarch._actor.failure import MeshFailure
from monarch._actor.future import Future
from monarch._actor.proc_mesh import ProcMesh
from monarch._actor.process import Process, process
from monarch._actor.readiness import Readiness
from monarch._actor.shape import Shape

P = ParamSpec("P")
T = TypeVar("T", bound=Actor)

# The same in every client, so that whoever knows the client's process can call it; ids that are handed out are larger.
CONTROLLERS_ID = 2


class Controllers(Actor):
    """Creates the controllers, and keeps them. Their failures are kept too, and end nothing."""

    def __init__(self) -> None:
        self._meshes: dict[str, ActorMesh[Any]] = {}
        self._failures: dict[str, str] = {}

    @endpoint
    def get_or_spawn(self, name: str, cls: type[Actor], args: Any, kwargs: Any) -> Any:
        if name in self._failures:
            raise ValueError(f"Failure on {name}: {self._failures[name]}")
        if name not in self._meshes:
            procs: ProcMesh = context().actor_instance.proc
            self._meshes[name] = procs.spawn(name, cls, *args, **kwargs)  # type: ignore[assignment]
        return self._meshes[name]

    def __supervise__(self, failure: MeshFailure) -> bool:
        self._failures[failure.mesh_name] = failure.report()
        return True


_lock = threading.Lock()
_started_in: Process | None = None


def _controllers() -> ActorMesh[Any]:
    owner = process()
    core = ActorMeshCore("controllers", Controllers, CONTROLLERS_ID, Readiness.done(), "<root>")
    core.set_procs([owner.root_proc])
    return ActorMesh(core, Shape.unity())


def start_controllers(client: Process) -> None:
    """Makes the client's Controllers actor, once; before any other process could ask for it."""
    from monarch._actor import pickling

    global _started_in
    # Held until it is sent: whoever finds it started calls it at once.
    with _lock:
        if _started_in is client:
            return
        _send_create(client, pickling.dumps({}), pickling.dumps((Controllers, (), {})))
        _started_in = client


def _send_create(client: Process, info: list[Any], spawn: list[Any]) -> None:
    root = client.default_context().actor_instance
    meta = {
        "actor": CONTROLLERS_ID,
        "name": "controllers",
        "class": "monarch.Controllers",
        "mesh": "controllers",
        "rank": 0,
        "labels": [],
        "sizes": [],
        "owner": list(root.address),
        "owner_label": root.label,
    }
    target = _runtime.Targets([(*client.self_proc, 0)], [0])
    client.runtime.send(
        root.actor,
        _runtime.CREATE,
        target,
        _runtime.PICKLE,
        _runtime.encode_value(meta),
        [*info, *spawn],
        None,
    )


def get_or_spawn_controller(name: str, Class: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """The actor of that name in the client's process; the first call for a name creates it."""
    owner = process()
    if owner.is_client:
        start_controllers(owner)
    found: Future[T] = _controllers().get_or_spawn.call_one(name, Class, args, kwargs)
    return found
