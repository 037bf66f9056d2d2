"""Actors, the meshes they live on, and what can happen to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monarch._actor import log_prefix as _log_prefix  # noqa: F401
from monarch._actor.activity import Activity, activities
from monarch._actor.actor import Actor
from monarch._actor.actor_mesh import ActorMesh
from monarch._actor.attach import attach, attach_to_workers
from monarch._actor.concurrent import concurrent_endpoint
from monarch._actor.context import (
    Context,
    context,
    current_actor_name,
    current_rank,
    current_size,
)
from monarch._actor.controller import get_or_spawn_controller
from monarch._actor.endpoint import Accumulator, Endpoint, NotAnEndpoint, as_endpoint, endpoint, send
from monarch._actor.errors import (
    ActorError,
    CallCancelledError,
    CallTimeoutError,
    DeadlockError,
    ResourceExhausted,
    SpawnError,
    SupervisionError,
)
from monarch._actor.failure import FailureEvent, MeshFailure
from monarch._actor.fault_hook import unhandled_fault_hook
from monarch._actor.future import Future
from monarch._actor.hang import Hang, hang_hook
from monarch._actor.host_mesh import HostMesh, hosts_from_config, this_host, this_proc
from monarch._actor.identity import ProcId, Uid
from monarch._actor.launch_spec import BootstrapCommand, default_bootstrap_cmd
from monarch._actor.port import Channel, Port, PortReceiver
from monarch._actor.proc_mesh import ProcMesh
from monarch._actor.restart_policy import Backoff, Restart, RestartEvent
from monarch._actor.session import shutdown_context
from monarch._actor.shape import Extent, Point, Region, Shape, Slice
from monarch._actor.shape import Slice as NDSlice
from monarch._actor.transport import enable_transport
from monarch._actor.value_mesh import ValueMesh
from monarch._actor.worker_loop import run_worker_loop_forever
from monarch._config.transport import ChannelTransport
from monarch._telemetry import get_meter, span, traced
from monarch.actor import config

if TYPE_CHECKING:
    from monarch._debugger.debug_controller import DebugController


def debug_controller() -> DebugController:
    """The debugger's controller, an actor in the client's process; the first call creates it."""
    from monarch._debugger import debug_controller as home

    return home.debug_controller()


__all__ = [
    "Accumulator",
    "Activity",
    "Actor",
    "ActorError",
    "ActorMesh",
    "Backoff",
    "BootstrapCommand",
    "CallCancelledError",
    "CallTimeoutError",
    "Channel",
    "ChannelTransport",
    "Context",
    "DeadlockError",
    "Endpoint",
    "Extent",
    "FailureEvent",
    "Future",
    "Hang",
    "HostMesh",
    "MeshFailure",
    "NDSlice",
    "NotAnEndpoint",
    "Point",
    "Port",
    "PortReceiver",
    "ProcId",
    "ProcMesh",
    "Region",
    "ResourceExhausted",
    "Restart",
    "RestartEvent",
    "Shape",
    "Slice",
    "SpawnError",
    "SupervisionError",
    "Uid",
    "ValueMesh",
    "activities",
    "as_endpoint",
    "attach",
    "attach_to_workers",
    "concurrent_endpoint",
    "config",
    "context",
    "current_actor_name",
    "current_rank",
    "current_size",
    "debug_controller",
    "default_bootstrap_cmd",
    "enable_transport",
    "endpoint",
    "get_meter",
    "get_or_spawn_controller",
    "hang_hook",
    "hosts_from_config",
    "run_worker_loop_forever",
    "send",
    "shutdown_context",
    "span",
    "this_host",
    "this_proc",
    "traced",
    "unhandled_fault_hook",
]
