"""How messages between hosts could be encoded."""

from __future__ import annotations

from enum import Enum


class Encoding(Enum):
    """Accepted for programs that choose one. There is one encoding here, so it changes nothing."""

    Bincode = "bincode"
    Json = "serde_json"
    Multipart = "serde_multipart"
