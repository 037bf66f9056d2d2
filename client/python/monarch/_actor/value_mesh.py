"""The answers of a mesh, by rank and coordinates."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from monarch._actor.mesh_trait import MeshTrait
from monarch._actor.shape import Point, Shape, Slice

T = TypeVar("T")


class _Pending:
    """A value that is still pickled."""

    __slots__ = ("load",)

    def __init__(self, load: Callable[[], Any]) -> None:
        self.load = load


class ValueMesh(MeshTrait, Generic[T]):
    """One value for each member of a mesh, in its shape. Iteration gives (point, value) pairs."""

    if not TYPE_CHECKING:

        def __class_getitem__(cls, item: Any) -> Any:
            """ValueMesh[T] is the class itself, so that isinstance and calls take it."""
            return cls

    def __init__(self, shape: Shape, values: Sequence[T]) -> None:
        self._cells: list[Any] = list(values)
        self._shape = shape
        # Positions of this mesh's members in the cells, which slices of it share.
        self._positions: Sequence[int] = range(len(self._cells))
        if len(shape) != len(self._cells):
            raise ValueError(f"a shape of {len(shape)} members needs as many values, got {len(self._cells)}")

    @classmethod
    def _from_pending(cls, shape: Shape, loads: Sequence[Callable[[], T]]) -> ValueMesh[T]:
        """Values that are unpickled when first looked at."""
        return cls(shape, cast("Sequence[T]", [_Pending(load) for load in loads]))

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
        out._cells = self._cells
        out._shape = shape
        out._positions = positions
        return out

    def _at(self, position: int) -> T:
        value = self._cells[position]
        if type(value) is _Pending:
            value = self._cells[position] = value.load()
        return cast("T", value)

    def get(self, rank: int) -> T:
        """By position in this mesh."""
        if not 0 <= rank < len(self._positions):
            raise ValueError(f"rank {rank} is out of range (len={len(self._positions)})")
        return self._at(self._positions[rank])

    def item(self, **kwargs: int) -> T:
        """By coordinates; all dimensions are needed."""
        coordinates = []
        for label in self._labels:
            coordinates.append(kwargs.pop(label))
        if kwargs:
            raise KeyError(f"item has extra dimensions: {sorted(kwargs)}")
        return self._at(self._positions[self._ndslice.index(self._ndslice.nditem(coordinates))])

    def values(self) -> list[T]:
        return [self._at(position) for position in self._positions]

    def items(self) -> Iterator[tuple[Point, T]]:
        extent = self.extent
        for rank, position in enumerate(self._positions):
            yield Point(rank, extent), self._at(position)

    def __iter__(self) -> Iterator[tuple[Point, T]]:
        return self.items()

    def __repr__(self) -> str:
        lines = [f"({point!r}, {value!r})," for point, value in self.items()]
        return f"ValueMesh({self.extent!r}):\n" + textwrap.indent("\n".join(lines), "  ")

    def __reduce__(self) -> Any:
        dense = Shape(self._labels, Slice.new_row_major(self._ndslice.sizes))
        return (ValueMesh, (dense, self.values()))
