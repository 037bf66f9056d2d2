"""Alias: names that live elsewhere."""

from __future__ import annotations

from monarch._debugger.address import HOST_VARIABLE as _MONARCH_DEBUG_SERVER_HOST_ENV_VAR
from monarch._debugger.address import PORT_VARIABLE as _MONARCH_DEBUG_SERVER_PORT_ENV_VAR
from monarch._debugger.address import PROTOCOL_VARIABLE as _MONARCH_DEBUG_SERVER_PROTOCOL_ENV_VAR
from monarch._debugger.address import server_host as _get_debug_server_host
from monarch._debugger.address import server_port as _get_debug_server_port
from monarch._debugger.address import server_protocol as _get_debug_server_protocol

__all__ = [
    "_MONARCH_DEBUG_SERVER_HOST_ENV_VAR",
    "_MONARCH_DEBUG_SERVER_PORT_ENV_VAR",
    "_MONARCH_DEBUG_SERVER_PROTOCOL_ENV_VAR",
    "_get_debug_server_host",
    "_get_debug_server_port",
    "_get_debug_server_protocol",
]
