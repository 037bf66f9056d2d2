"""The answers of a mesh, by rank and coordinates."""

from __future__ import annotations

import bisect
import functools
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from monarch._actor.mesh_trait import MeshTrait
from monarch._actor.shape import Point, Shape, Slice

P = TypeVar("P")
T = TypeVar("T")


# What cannot be told apart from an equal value of its type.
_ATOMS = (int, str, bytes, bool, type(None))
_NOT_LOADED = object()


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and type(a) in _ATOMS and bool(a == b))


class _Pending:
    """A payload of one or more positions, unpickled for each when looked at: what can change is not shared."""

    __slots__ = ("_count", "_for_all", "_load", "_loaded")

    def __init__(self, load: Callable[[], Any], count: int) -> None:
        self._load: Callable[[], Any] | None = load
        self._count = count
        self._loaded: dict[int, Any] = {}
        self._for_all: Any = _NOT_LOADED

    def at(self, position: int) -> Any:
        load = self._load
        if position in self._loaded:
            return self._loaded[position]
        if load is None:
            return self._for_all
        value = load()
        if type(value) in _ATOMS:
            self._for_all = value
            self._load = None
            return value
        # Another thread may have been faster; then all see its value.
        value = self._loaded.setdefault(position, value)
        if len(self._loaded) == self._count:
            self._load = None  # The payload's memory is its sender's.
        return value


class _Runs:
    """Values by position; neighbours that are the same are kept once. Thread-safe."""

    __slots__ = ("_cells", "_ends", "count")

    def __init__(self, values: Iterable[Any], same: Callable[[Any, Any], bool]) -> None:
        self._cells: list[Any] = []
        self._ends: list[int] = []  # of each run
        last: Any = None
        position = 0
        for position, value in enumerate(values, 1):
            if self._ends and same(last, value):
                self._ends[-1] = position
            else:
                self._cells.append(value)
                self._ends.append(position)
                last = value
        self.count = position

    def set_pending(self, load: Callable[[Any], Any]) -> None:
        """The values are payloads, of which `load` makes values."""
        starts = [0, *self._ends]
        for i, payload in enumerate(self._cells):
            self._cells[i] = _Pending(functools.partial(load, payload), self._ends[i] - starts[i])

    def at(self, position: int) -> Any:
        dense = len(self._cells) == self.count
        cell = self._cells[position if dense else bisect.bisect_right(self._ends, position)]
        return cell.at(position) if type(cell) is _Pending else cell


class ValueMesh(MeshTrait, Generic[T]):
    """One value for each member of a mesh, in its shape. Iteration gives (point, value) pairs."""

    __slots__ = ("_positions", "_runs", "_shape")

    if not TYPE_CHECKING:

        def __class_getitem__(cls, item: Any) -> Any:
            """ValueMesh[T] is the class itself, so that isinstance and calls take it."""
            return cls

    def __init__(self, shape: Shape, values: Sequence[T]) -> None:
        self._fill(shape, _Runs(values, _same))

    def _fill(self, shape: Shape, runs: _Runs) -> None:
        if len(shape) != runs.count:
            raise ValueError(f"a shape of {len(shape)} members needs as many values, got {runs.count}")
        self._shape = shape
        # Positions of this mesh's members in the runs, which slices of it share.
        self._positions: Sequence[int] = range(runs.count)
        self._runs = runs

    @classmethod
    def _from_payloads(
        cls,
        shape: Shape,
        payloads: Iterable[P],
        load: Callable[[P], T],
        same: Callable[[P, P], bool],
    ) -> ValueMesh[T]:
        """Values that `load` makes of payloads when they are first looked at."""
        runs = _Runs(payloads, same)
        runs.set_pending(load)
        self = cls.__new__(cls)
        self._fill(shape, runs)
        return self

    @staticmethod
    def from_indexed(shape: Shape, pairs: Iterable[tuple[int, T]]) -> ValueMesh[T]:
        """From (rank, value) pairs; of two for a rank the later one counts."""
        found = dict(pairs)
        wanted = len(shape)
        if set(found) != set(range(wanted)):
            known = sum(1 for rank in found if 0 <= rank < wanted)
            raise ValueError(
                f"values are missing or too many: expected {wanted} ranks, the input contains {known}"
            )
        return ValueMesh(shape, [found[rank] for rank in range(wanted)])

    @property
    def _ndslice(self) -> Slice:
        return self._shape.ndslice

    @property
    def _labels(self) -> Sequence[str]:
        return self._shape.labels

    def _new_with_shape(self, shape: Shape) -> ValueMesh[T]:
        old = self._shape.ndslice
        positions = [self._positions[old.index(rank)] for rank in shape.ndslice]
        out: ValueMesh[T] = ValueMesh.__new__(ValueMesh)
        out._shape = shape
        out._positions = positions
        out._runs = self._runs
        return out

    def get(self, rank: int) -> T:
        """By position in this mesh."""
        if not 0 <= rank < len(self._positions):
            raise ValueError(f"rank {rank} is out of range (len={len(self._positions)})")
        return cast("T", self._runs.at(self._positions[rank]))

    def item(self, **kwargs: int) -> T:
        """By coordinates; all dimensions are needed."""
        coordinates = []
        for label in self._labels:
            coordinates.append(kwargs.pop(label))
        if kwargs:
            raise KeyError(f"item has extra dimensions: {sorted(kwargs)}")
        return cast(
            "T", self._runs.at(self._positions[self._ndslice.index(self._ndslice.nditem(coordinates))])
        )

    def values(self) -> list[T]:
        return [self._runs.at(position) for position in self._positions]

    def items(self) -> Iterator[tuple[Point, T]]:
        extent = self.extent
        for rank, position in enumerate(self._positions):
            yield Point(rank, extent), self._runs.at(position)

    def __iter__(self) -> Iterator[tuple[Point, T]]:
        return self.items()

    def __repr__(self) -> str:
        lines = [f"({point!r}, {value!r})," for point, value in self.items()]
        return f"ValueMesh({self.extent!r}):\n" + textwrap.indent("\n".join(lines), "  ")

    def __reduce__(self) -> Any:
        dense = Shape(self._labels, Slice.new_row_major(self._ndslice.sizes))
        return (ValueMesh, (dense, self.values()))
