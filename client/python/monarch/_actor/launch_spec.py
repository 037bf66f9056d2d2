"""What a worker process is started with: the client's own surroundings, and how to find this package."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from typing import Any

from monarch import _runtime
from monarch._config.layers import layers

# Runs before any import but `sys`. The directory of the package stands first only while the package itself is
# imported, and the working directory never: a file there must not shadow a module.
_START = (
    "import sys; d = sys.argv.pop(1); sys.path = [d] + [p for p in sys.path if p]; import monarch; "
    "del sys.path[0]; from monarch._worker import main; main()"
)

_FOREVER_MS = 2**32 - 1


class BootstrapCommand:
    """A program that starts a worker: it ends in running `default_bootstrap_cmd()`'s program and arguments.

    Attributes:
        program, arg0, args: what is executed.
        env: added to the client's environment.
    """

    def __init__(self, program: str, arg0: str | None, args: list[str], env: dict[str, str]) -> None:
        self.program = program
        self.arg0 = arg0
        self.args = list(args)
        self.env = dict(env)

    def with_env(self, env: dict[str, str]) -> BootstrapCommand:
        """A copy with more in its environment."""
        return BootstrapCommand(self.program, self.arg0, self.args, {**self.env, **env})

    def __repr__(self) -> str:
        return f"BootstrapCommand(program={self.program!r}, args={self.args!r}, env={self.env!r})"


def package_parent() -> str:
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def default_bootstrap_cmd(executable: str | None = None) -> BootstrapCommand:
    """How workers are started unless said otherwise: this interpreter, with this package."""
    program = executable or sys.executable
    flags = subprocess._args_from_interpreter_flags() if executable is None else []  # type: ignore[attr-defined]
    return BootstrapCommand(program, None, [*flags, "-c", _START, package_parent()], {})


def search_path() -> list[str]:
    """sys.path with every entry absolute: workers may change their directory."""
    return [os.path.abspath(entry) if isinstance(entry, str) else str(entry) for entry in sys.path]


def _umask() -> int:
    # os.umask() can be read only by setting it, for all threads.
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        found = re.search(r"^Umask:\s*([0-7]+)", status.read(), re.MULTILINE)
    return int(found[1], 8) if found else 0o022


def _limits() -> list[tuple[int, int, int]]:
    def unsigned(value: int) -> int:
        return value & 0xFFFFFFFFFFFFFFFF

    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    numbers = {getattr(resource, name) for name in names} - {resource.RLIMIT_CORE}
    out = []
    for number in sorted(numbers):
        soft, hard = resource.getrlimit(number)
        out.append((number, unsigned(soft), unsigned(hard)))
    return out


def _cpus(text: str) -> list[int]:
    """Numbers of a list like "0-3,8"."""
    out: list[int] = []
    for item in text.split(","):
        first, _, last = item.partition("-")
        out += range(int(first), int(last or first) + 1)
    return out


def positive_limits(**limits: int | None) -> dict[str, int]:
    """Those that are given."""
    for name, value in limits.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(f"{name} is a whole number, not {value!r}")
        if value is not None and not 0 < value < 2**63:
            raise ValueError(f"{name} must be positive, not {value}")
    return {name: value for name, value in limits.items() if value is not None}


def make_spec(
    command: BootstrapCommand,
    boot: bytes,
    limits: dict[str, int],
    bind: dict[str, str] | None = None,
    *,
    far: bool = False,
    output_tag: str = "",
) -> dict[str, Any]:
    """One process' specification for the control plane. `far`: on another host, whose daemon's surroundings it gets."""
    argv = [command.program, *command.args]
    cpus = [] if far else sorted(os.sched_getaffinity(0))
    numa = []
    for key, value in (bind or {}).items():
        if key == "cpus":
            cpus = _cpus(value)
        elif key in ("cpunodebind", "membind", "physcpubind"):
            numa.append(f"--{key}={value}")
        else:
            raise ValueError(f"proc_bind has cpunodebind, membind, physcpubind and cpus, not {key!r}")
    if numa:
        argv = ["numactl", *numa, "--", *argv]
    added = {os.fsencode(key): os.fsencode(value) for key, value in command.env.items()}
    env = added if far else {**os.environb, **added}
    return {
        "argv": [os.fsencode(arg) for arg in argv],
        "env": [key + b"=" + value for key, value in env.items()],
        "cwd": b"" if far else os.getcwdb(),
        "umask": _umask(),
        "limits": [] if far else _limits(),
        "cpus": cpus,
        "boot": boot,
        "inherit_env": far,
        "output_tag": output_tag,
        **limits,
    }


def phase_timeout_ms() -> int:
    """The limit for each phase of a process's start; 0: the daemon's default."""
    names = ("host_spawn_ready_timeout", "mesh_proc_spawn_max_idle")
    chosen = [layers.seconds(name) for name in names if layers.is_set(name)]
    if not chosen:
        return 0
    return max(1, min(int(max(chosen) * 1000), _FOREVER_MS)) if all(chosen) else _FOREVER_MS


def make_boot(root: Any, *, own_interpreter: bool) -> bytes:
    """What the worker is told before it loads anything."""
    boot: dict[str, Any] = {
        "root": list(root),
        "executable": "" if own_interpreter else sys.executable,
        "config": layers.bequest(),
    }
    if own_interpreter:
        boot["path"] = search_path()
    else:
        # Another interpreter has its own libraries: only what this program added to the search path.
        own = os.path.dirname(os.__file__)
        boot["extra_path"] = [
            p for p in search_path() if not p.startswith((own, sys.prefix, sys.base_prefix))
        ]
    return _runtime.encode_value(boot)
