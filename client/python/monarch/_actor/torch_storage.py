"""Torch's storages in messages: they arrive on the CPU, wherever they were. Never imports torch before the program does."""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any

# Of storages; empty while torch is not loaded.
types: set[type] = set()


def learn_types() -> None:
    """Fills `types`, unless torch is still being loaded."""
    storage = getattr(sys.modules.get("torch"), "storage", None)
    found = [getattr(storage, name, None) for name in ("UntypedStorage", "TypedStorage")]
    known = [kind for kind in found if kind is not None]
    if len(known) < len(found):
        return
    for kind in known:  # grows
        known.extend(kind.__subclasses__())
    types.update(known)


def reduce(storage: Any) -> Any:
    import torch

    out = io.BytesIO()
    torch.save(storage, out, _use_new_zipfile_serialization=False)
    return _load, (pickle.PickleBuffer(out.getvalue()),)


def _load(data: Any) -> Any:
    import torch

    # It comes from an actor of this session, as all the rest of the message.
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)
