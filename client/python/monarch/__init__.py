"""Distributed actors with supervision. The actor API is `monarch.actor`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monarch._actor.shape import Extent, Region, Shape, Slice
    from monarch._actor.shape import Slice as NDSlice
    from monarch.config import (
        clear_runtime_config,
        configure,
        configured,
        get_global_config,
        get_runtime_config,
    )

__all__ = [
    "Extent",
    "NDSlice",
    "Region",
    "Shape",
    "Slice",
    "clear_runtime_config",
    "configure",
    "configured",
    "get_global_config",
    "get_runtime_config",
]

_SHAPES = "monarch._actor.shape"
_CONFIG = "monarch.config"
_HOMES = {
    "Extent": _SHAPES,
    "NDSlice": _SHAPES,
    "Region": _SHAPES,
    "Selection": "monarch._compat.selection",
    "Shape": _SHAPES,
    "Slice": _SHAPES,
    "clear_runtime_config": _CONFIG,
    "configure": _CONFIG,
    "configured": _CONFIG,
    "get_global_config": _CONFIG,
    "get_runtime_config": _CONFIG,
}
_OF_THE_TENSOR_ENGINE = frozenset(
    [
        "ActorFuture",
        "Future",
        "OpaqueRef",
        "RemoteProcessGroup",
        "Simulator",
        "Stream",
        "Tensor",
        "builtins",
        "call_on_shard_and_fetch",
        "coalescing",
        "fetch_shard",
        "function_resolvers",
        "get_active_mesh",
        "get_active_stream",
        "grad_function",
        "grad_generator",
        "inspect",
        "mast_reserve",
        "no_mesh",
        "reduce",
        "reduce_",
        "remote",
        "set_meta",
        "show",
        "slice_mesh",
        "timer",
        "to_mesh",
        "world_mesh",
    ]
)


def __getattr__(name: str) -> Any:
    # Looked up when first used: a worker starts with `import monarch` alone.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), "Slice" if name == "NDSlice" else name)
    if name == "__version__":
        from monarch._runtime import VERSION

        return VERSION
    if name in _OF_THE_TENSOR_ENGINE:
        raise ImportError(
            f"monarch.{name} belongs to the tensor engine, which this version does not have"
            + ("; the future of actor calls is monarch.actor.Future" if "Future" in name else "")
        )
    raise AttributeError(f"module 'monarch' has no attribute {name!r}")
