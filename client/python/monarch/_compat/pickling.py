"""Pickling with some objects lifted out, and counters of the mesh references in messages."""

from __future__ import annotations

import pickle as _pickle
from collections.abc import Callable, Iterable
from typing import Any

from monarch._actor.cloud_pickler import CloudPickler
from monarch._actor.readiness import ReferenceCounts
from monarch._compat.buffers import Buffer, FrozenBuffer


class _Lifting(CloudPickler):
    def __init__(self, lifted: Callable[[Any], bool], out: Any) -> None:
        super().__init__(out, 5, None)
        self._is_lifted = lifted
        self.lifted: list[Any] = []

    def persistent_id(self, obj: Any) -> int | None:
        if not self._is_lifted(obj):
            return None
        self.lifted.append(obj)
        return len(self.lifted) - 1


class _Putting(_pickle.Unpickler):
    def __init__(self, data: FrozenBuffer, values: Iterable[Any]) -> None:
        super().__init__(data)
        self._values = list(values)

    def persistent_load(self, pid: Any) -> Any:
        return self._values[pid]


def flatten(obj: Any, filter: Callable[[Any], bool]) -> tuple[list[Any], Buffer]:
    """The objects in `obj` that the filter picks, and the rest pickled."""
    buffer = Buffer()
    pickler = _Lifting(filter, buffer)
    pickler.dump(obj)
    return pickler.lifted, buffer


def unflatten(data: FrozenBuffer | bytes, values: Iterable[Any]) -> Any:
    """What flatten() took apart, with other objects in place of the lifted ones."""
    return _Putting(FrozenBuffer(data) if isinstance(data, bytes) else data, values).load()


def _get_mesh_pop_count() -> int:
    return ReferenceCounts.received


def _reset_mesh_pop_count() -> None:
    ReferenceCounts.received = 0


def _get_pending_reserve_count() -> int:
    return ReferenceCounts.sent_pending


def _reset_pending_reserve_count() -> None:
    ReferenceCounts.sent_pending = 0
