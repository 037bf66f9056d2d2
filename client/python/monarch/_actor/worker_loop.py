"""The host's side of attach_to_workers: a daemon that serves other hosts' clients."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from typing import Any, NoReturn

from monarch._actor.launch_spec import package_parent

TRUST = "trust_all_connections"

# Nobody elsewhere can dial a loopback name, so that is all that is listened on: the daemon serves TCP there only.
_ANY_INTERFACE = re.compile(r"^(tcp://(?:127\.[\d.]+|localhost):\d+)@tcp://0\.0\.0\.0:(\d+)$")


def check_trust(private_key: Any, ca: Any) -> None:
    if private_key is not None:
        raise NotImplementedError("private_key must be None: keys are not supported yet")
    if ca != TRUST:
        raise NotImplementedError(f"ca must be {TRUST!r}: certificates are not supported yet")


def daemon_command(address: str) -> list[str]:
    """The program that serves an address."""
    return [os.path.join(package_parent(), "monarch", "bin", "monarchd"), "--worker-address", address]


def _listen(fd: int) -> None:
    """For a socket that was bound, and perhaps no more."""
    with socket.socket(fileno=os.dup(fd)) as bound:
        bound.listen()
    os.set_inheritable(fd, True)


def run_worker_loop_forever(*, private_key: Any = None, ca: Any, address: str) -> NoReturn:
    """Makes this process the daemon of its host for clients that attach at `address`; never returns.

    The process goes on as `monarchd`, under its process id, and ends with status 0 once a client has shut the host
    down. Processes that are spawned on the host get this process's environment and working directory.

    Args:
        private_key: must be None.
        ca: must be "trust_all_connections".
        address: where to listen: `tcp://host:port`, `ipc://path`, `dial_address@bind_address`, or `tcp://host:fdN` for
            an inherited listening socket.
    """
    check_trust(private_key, ca)
    if not isinstance(address, str):
        raise TypeError(f"address is a str such as tcp://127.0.0.1:26600, not {address!r}")
    if "tcp://*" in address:
        raise NotImplementedError(
            "a worker cannot listen on tcp://*: others would not know its name. Give the address to dial and the one "
            "to listen on: tcp://HOST:PORT@tcp://0.0.0.0:PORT"
        )
    inherited = re.search(r":fd(\d+)$", address)
    if inherited:
        _listen(int(inherited[1]))
    command = daemon_command(_ANY_INTERFACE.sub(r"\1@tcp://127.0.0.1:\2", address))
    sys.stdout.flush()
    sys.stderr.flush()
    # Python ignores it, and what is ignored stays so in the new program and in all that it starts.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv(command[0], command)
