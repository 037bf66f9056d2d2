"""The control plane: gRPC. Loaded when a program first spawns or stops processes."""

from collections.abc import Callable, Sequence
from typing import Any

from ._runtime import Address, Proc

class ControlError(RuntimeError):
    """A refused or failed request. `failures`: FailureEvents as dicts, for a spawn that failed."""

    code: str
    message: str
    limit: str
    failures: list[dict[str, Any]]

class Channel:
    """A connection to the daemon; `open_fd` (Runtime.open_control) is called when one is needed.

    `token` (Runtime.control_token) says whose requests they are.

    The connection is dropped after a second without requests.
    """

    def __init__(self, open_fd: Callable[[], int], token: str) -> None: ...
    # one spec dict, or one for each process: argv, env, cwd (bytes; empty: the daemon's), umask,
    # limits [(resource, soft, hard)], cpus, boot, inherit_env (optional: the daemon's environment, env on top),
    # output_tag (optional: its output goes to the client's stream under this tag).
    # hosts: a host id for each process; none: the daemon's own. Whole or not at all over all hosts.
    # ranks: those of the mesh that are started, ascending; none: all. incarnation: of their addresses.
    def spawn_procs(
        self,
        mesh: str,
        labels: Sequence[str],
        sizes: Sequence[int],
        specs: Sequence[dict[str, Any]],
        owner: Address,
        phase_timeout_ms: int,
        hosts: Sequence[bytes] = (),
        ranks: Sequence[int] = (),
        incarnation: int = 1,
    ) -> list[tuple[Proc, int]]: ...  # (address, pid) in rank order
    def stop_procs(
        self, procs: Sequence[Proc], grace_ms: int, kill_after_ms: int, reason: str
    ) -> list[dict[str, Any]]: ...
    def signal_procs(self, procs: Sequence[Proc], signal: int) -> None: ...
    def list_procs(self) -> list[dict[str, Any]]: ...
    # Of this host's actors that are at work: actor, pid, method, age (seconds), state, wait_channel.
    def list_activities(self) -> list[dict[str, Any]]: ...
    # {"host": 16 bytes, "host_name": str, "address": str}; idempotent. ControlError UNAVAILABLE, naming the address:
    # nobody answers there in time.
    def attach_host(self, address: str, timeout_ms: int) -> dict[str, Any]: ...
    # stops the session's processes there by the ladder, then ends that host's daemon; 0: the daemon's defaults
    def shutdown_host(self, host: bytes, grace_ms: int, kill_after_ms: int) -> None: ...
    def close(self) -> None: ...
