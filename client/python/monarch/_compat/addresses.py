"""Addresses of actors that are made by hand."""

from __future__ import annotations

from monarch._actor.identity import ActorId

_SCHEMES = {"local": "inproc", "unix": "ipc"}


class ActorAddr(ActorId):
    """An actor's identity. `addr` may be in the older syntax: `local:0` is `inproc://0`."""

    __slots__ = ()

    def __new__(cls, addr: str, proc_name: str, actor_name: str) -> ActorAddr:
        scheme, colon, rest = addr.partition(":")
        if not colon:
            raise ValueError(f"not an address: {addr!r}; an example is 'tcp://host:port'")
        url = f"{_SCHEMES.get(scheme, scheme)}://{rest.removeprefix('//')}"
        return super().__new__(cls, url, proc_name, actor_name)
