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

    The connection is dropped after a second without requests.
    """

    def __init__(self, open_fd: Callable[[], int]) -> None: ...
    # one spec dict, or one for each rank: argv, env, cwd (bytes), umask, limits [(resource, soft, hard)], cpus, boot
    def spawn_procs(
        self,
        mesh: str,
        labels: Sequence[str],
        sizes: Sequence[int],
        specs: Sequence[dict[str, Any]],
        owner: Address,
        phase_timeout_ms: int,
    ) -> list[tuple[Proc, int]]: ...  # (address, pid) in rank order
    def stop_procs(
        self, procs: Sequence[Proc], grace_ms: int, kill_after_ms: int, reason: str
    ) -> list[dict[str, Any]]: ...
    def signal_procs(self, procs: Sequence[Proc], signal: int) -> None: ...
    def list_procs(self) -> list[dict[str, Any]]: ...
    def close(self) -> None: ...
