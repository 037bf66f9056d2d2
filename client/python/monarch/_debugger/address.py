"""Where the debugger listens, and how its client finds it."""

from __future__ import annotations

import os

HOST_VARIABLE = "MONARCH_DEBUG_SERVER_HOST"
PORT_VARIABLE = "MONARCH_DEBUG_SERVER_PORT"
PROTOCOL_VARIABLE = "MONARCH_DEBUG_SERVER_PROTOCOL"

# Nobody has to prove who he is, and pdb runs any code: so only this machine, unless the user says otherwise.
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 27000


def server_host() -> str:
    return os.environ.get(HOST_VARIABLE) or DEFAULT_HOST


def server_port() -> int:
    """0 stands for any free port."""
    text = os.environ.get(PORT_VARIABLE) or str(DEFAULT_PORT)
    if not text.isdecimal() or int(text) > 65535:
        raise ValueError(f"{PORT_VARIABLE} is a port between 0 and 65535, not {text!r}")
    return int(text)


def server_protocol() -> str:
    protocol = os.environ.get(PROTOCOL_VARIABLE) or "tcp"
    if protocol != "tcp":
        raise NotImplementedError(
            f"{PROTOCOL_VARIABLE} is 'tcp', the only protocol there is, not {protocol!r}"
        )
    return protocol
