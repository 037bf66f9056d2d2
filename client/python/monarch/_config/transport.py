"""Kinds of connections between hosts, and where a program wants to be reached."""

from __future__ import annotations

from enum import Enum


class ChannelTransport(Enum):
    """How processes of different hosts reach each other."""

    TcpWithLocalhost = "tcp-localhost"
    TcpWithHostname = "tcp"
    MetaTlsWithHostname = "metatls-hostname"
    MetaTlsWithIpV6 = "metatls"
    Tls = "tls"
    Quic = "quic"
    MetaQuicWithHostname = "metaquic-hostname"
    MetaQuicWithIpV6 = "metaquic"
    Local = "local"
    Unix = "ipc"


_BY_NAME = {
    **{transport.name: transport for transport in ChannelTransport},
    **{transport.value: transport for transport in ChannelTransport},
    "unix": ChannelTransport.Unix,
    "tcp(localhost)": ChannelTransport.TcpWithLocalhost,
    "tcp(hostname)": ChannelTransport.TcpWithHostname,
    "metatls(hostname)": ChannelTransport.MetaTlsWithHostname,
    "metatls(ipv6)": ChannelTransport.MetaTlsWithIpV6,
    "metaquic(hostname)": ChannelTransport.MetaQuicWithHostname,
    "metaquic(ipv6)": ChannelTransport.MetaQuicWithIpV6,
}
_SCHEMES = ("tcp", "ipc", "unix", "tls", "metatls", "quic", "metaquic", "inproc", "local")


class BindSpec:
    """Where to listen: any address of a kind of transport, or one address given as a URL. Immutable, picklable.

    Attributes:
        transport: the kind; None with a URL.
        url: the address ("tcp://127.0.0.1:8080"); None with a kind.
    """

    __slots__ = ("transport", "url")

    transport: ChannelTransport | None
    url: str | None

    def __init__(self, spec: ChannelTransport | str | BindSpec) -> None:
        """Takes a kind, the name of one ("tcp", "ipc", "tls", "metatls", "metatls-hostname"), or a URL.

        Raises ValueError for another text, and TypeError for another type.
        """
        transport, url = _read(spec)
        object.__setattr__(self, "transport", transport)
        object.__setattr__(self, "url", url)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a BindSpec cannot be changed: make another with the {name!r} you want")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BindSpec):
            return NotImplemented
        return (self.transport, self.url) == (other.transport, other.url)

    def __hash__(self) -> int:
        return hash((self.transport, self.url))

    def __str__(self) -> str:
        return self.transport.value if self.transport is not None else str(self.url)

    def __repr__(self) -> str:
        return f"BindSpec({self.transport if self.transport is not None else self.url!r})"

    def __reduce__(self) -> tuple[type[BindSpec], tuple[str]]:
        return (BindSpec, (str(self),))


def _read(spec: object) -> tuple[ChannelTransport | None, str | None]:
    if isinstance(spec, BindSpec):
        return spec.transport, spec.url
    if isinstance(spec, ChannelTransport):
        return spec, None
    if not isinstance(spec, str):
        raise TypeError(f"a transport is a ChannelTransport, a name or a URL, not {spec!r}")
    if spec in _BY_NAME:
        return _BY_NAME[spec], None
    scheme, separator, rest = spec.partition("://")
    if separator and rest and scheme in _SCHEMES:
        return None, spec
    raise ValueError(
        f"{spec!r} is no transport: use one of {', '.join(t.value for t in ChannelTransport)}, or a URL that begins "
        f"with one of {', '.join(_SCHEMES)}, such as tcp://127.0.0.1:8080"
    )
