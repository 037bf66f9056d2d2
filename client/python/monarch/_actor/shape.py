"""Sizes, ranks and coordinates of meshes: Slice, Shape, Extent, Point, Region."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload


def _product(sizes: Sequence[int]) -> int:
    out = 1
    for size in sizes:
        out *= size
    return out


def _row_major_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class Slice:
    """A strided set of ranks: offset + sum(coordinate[i] * strides[i]), in row-major order. Immutable."""

    __slots__ = ("_offset", "_sizes", "_strides")

    def __init__(self, *, offset: int, sizes: Sequence[int], strides: Sequence[int]) -> None:
        self._offset = operator.index(offset)
        self._sizes = tuple(operator.index(size) for size in sizes)
        self._strides = tuple(operator.index(stride) for stride in strides)
        self._check()

    def _check(self) -> None:
        if len(self._sizes) != len(self._strides):
            raise ValueError(f"{len(self._sizes)} sizes, but {len(self._strides)} strides")
        if self._offset < 0 or any(size < 1 for size in self._sizes):
            raise ValueError("the offset of a slice is at least 0, its sizes are at least 1")
        # From the smallest stride up, each must lie beyond all ranks that the smaller ones can reach.
        reach = 0
        for stride, size in sorted(zip(self._strides, self._sizes, strict=True)):
            if size == 1:
                continue
            if stride <= reach:
                raise ValueError(f"strides {list(self._strides)} give the same rank to two members")
            reach += stride * (size - 1)

    @staticmethod
    def new_row_major(sizes: Sequence[int]) -> Slice:
        """All ranks from 0, the last dimension fastest."""
        return Slice(offset=0, sizes=sizes, strides=_row_major_strides([operator.index(s) for s in sizes]))

    @staticmethod
    def from_list(ranks: Sequence[int]) -> list[Slice]:
        """Slices of one dimension that cover `ranks` in their order, each as long as one stride allows."""
        out, i = [], 0
        while i < len(ranks):
            end = i + 1
            stride = ranks[end] - ranks[i] if end < len(ranks) else 1
            if stride > 0:
                while end < len(ranks) and ranks[end] - ranks[end - 1] == stride:
                    end += 1
            count = end - i
            out.append(Slice(offset=ranks[i], sizes=[count], strides=[stride if count > 1 else 1]))
            i = end
        return out

    @property
    def offset(self) -> int:
        return self._offset

    @property
    def sizes(self) -> list[int]:
        return list(self._sizes)

    @property
    def strides(self) -> list[int]:
        return list(self._strides)

    @property
    def ndim(self) -> int:
        return len(self._sizes)

    def coordinates(self, value: int) -> list[int]:
        """Where a rank is; ValueError if it is not in the slice."""
        rest = value - self._offset
        found = [0] * len(self._sizes)
        for dim in sorted(range(len(self._sizes)), key=lambda d: -self._strides[d]):
            if self._sizes[dim] > 1:
                found[dim] = min(max(rest, 0) // self._strides[dim], self._sizes[dim] - 1)
                rest -= found[dim] * self._strides[dim]
        if rest != 0:
            raise ValueError(f"value {value} is not in {self!r}")
        return found

    def index(self, value: int) -> int:
        """The position of a rank in row-major order; ValueError if it is not in the slice."""
        position = 0
        for coordinate, size in zip(self.coordinates(value), self._sizes, strict=True):
            position = position * size + coordinate
        return position

    def nditem(self, coordinates: Sequence[int]) -> int:
        """The rank at the coordinates; IndexError outside."""
        if len(coordinates) != len(self._sizes):
            raise IndexError(f"{len(coordinates)} coordinates for {len(self._sizes)} dimensions")
        rank = self._offset
        for coordinate, size, stride in zip(coordinates, self._sizes, self._strides, strict=True):
            if not 0 <= coordinate < size:
                raise IndexError(f"coordinate {coordinate} is out of range for size {size}")
            rank += coordinate * stride
        return rank

    def get(self, i: int) -> int:
        """The i-th rank; ValueError outside."""
        if not 0 <= i < len(self):
            raise ValueError(f"index {i} is out of range for a slice of {len(self)}")
        rank = self._offset
        for size, stride in zip(reversed(self._sizes), reversed(self._strides), strict=True):
            i, coordinate = divmod(i, size)
            rank += coordinate * stride
        return rank

    @overload
    def __getitem__(self, i: int) -> int: ...
    @overload
    def __getitem__(self, i: slice) -> tuple[int, ...]: ...
    def __getitem__(self, i: int | slice) -> int | tuple[int, ...]:
        if isinstance(i, slice):
            return tuple(self.get(k) for k in range(*i.indices(len(self))))
        if i < 0:
            raise TypeError(f"an index of a slice is at least 0, not {i}")
        if i >= len(self):
            raise IndexError(f"index {i} is out of range for a slice of {len(self)}")
        return self.get(i)

    def __len__(self) -> int:
        return _product(self._sizes)

    def __iter__(self) -> Iterator[int]:
        ranks = [self._offset]
        for size, stride in zip(self._sizes, self._strides, strict=True):
            ranks = [rank + i * stride for rank in ranks for i in range(size)]
        return iter(ranks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Slice):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        return (self._offset, self._sizes, self._strides)

    def __repr__(self) -> str:
        return f"Slice {{ offset: {self._offset}, sizes: {self.sizes}, strides: {self.strides} }}"

    def __reduce__(self) -> Any:
        return (_make_slice, self._key())


def _make_slice(offset: int, sizes: Sequence[int], strides: Sequence[int]) -> Slice:
    return Slice(offset=offset, sizes=sizes, strides=strides)


def _check_labels(labels: Sequence[str], dims: int) -> tuple[str, ...]:
    out = tuple(labels)
    if len(out) != dims:
        raise ValueError(f"{len(out)} labels for {dims} dimensions")
    if len(set(out)) != len(out):
        raise ValueError(f"a label appears twice in {list(out)}")
    return out


class Region:
    """Labelled dimensions over a slice, without further operations."""

    __slots__ = ("_labels", "_slice")

    def __init__(self, labels: Sequence[str], slice: Slice) -> None:
        self._labels = _check_labels(labels, slice.ndim)
        self._slice = slice

    @property
    def labels(self) -> list[str]:
        return list(self._labels)

    def slice(self) -> Slice:
        return self._slice

    def as_shape(self) -> Shape:
        return Shape(self._labels, self._slice)

    def point_of_base_rank(self, rank: int) -> Point:
        """The point of a rank of the mesh that this is a region of."""
        return Point(self._slice.index(rank), Extent(self._labels, self._slice.sizes))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Region):
            return NotImplemented
        return self._labels == other._labels and self._slice == other._slice

    def __hash__(self) -> int:
        return hash((self._labels, self._slice))

    def __repr__(self) -> str:
        return f"Region(labels={self.labels}, slice={self._slice!r})"

    def __reduce__(self) -> Any:
        return (Region, (self.labels, self._slice))


class Shape:
    """A slice with a name for each dimension. Immutable."""

    __slots__ = ("_labels", "_slice")

    def __init__(self, labels: Sequence[str], slice: Slice) -> None:
        self._labels = _check_labels(labels, slice.ndim)
        self._slice = slice

    @staticmethod
    def unity() -> Shape:
        """One rank and no dimensions."""
        return Shape([], Slice(offset=0, sizes=[], strides=[]))

    @staticmethod
    def row_major(dims: Mapping[str, int]) -> Shape:
        return Shape(list(dims), Slice.new_row_major(list(dims.values())))

    @staticmethod
    def from_bytes(data: bytes) -> Shape:
        import pickle

        shape = pickle.loads(data)
        if not isinstance(shape, Shape):
            raise ValueError("these bytes are not a shape")
        return shape

    @property
    def labels(self) -> list[str]:
        return list(self._labels)

    @property
    def ndslice(self) -> Slice:
        return self._slice

    @property
    def extent(self) -> Extent:
        return Extent(self._labels, self._slice.sizes)

    @property
    def region(self) -> Region:
        return Region(self._labels, self._slice)

    def ranks(self) -> list[int]:
        return list(self._slice)

    def coordinates(self, rank: int) -> dict[str, int]:
        return dict(zip(self._labels, self._slice.coordinates(rank), strict=True))

    def _dim(self, label: str) -> int:
        try:
            return self._labels.index(label)
        except ValueError:
            raise ValueError(f"no dimension {label!r} among {self.labels}") from None

    def at(self, label: str, i: int) -> Shape:
        """The dimension fixed at `i`, and gone."""
        dim = self._dim(label)
        if i < 0:
            raise OverflowError("can't convert negative int to unsigned")
        sizes, strides = self._slice.sizes, self._slice.strides
        if i >= sizes[dim]:
            raise ValueError(f"index {i} is out of range for dimension {label!r} of size {sizes[dim]}")
        offset = self._slice.offset + i * strides[dim]
        del sizes[dim], strides[dim]
        labels = [name for name in self._labels if name != label]
        return Shape(labels, Slice(offset=offset, sizes=sizes, strides=strides))

    def select(self, label: str, selection: slice) -> Shape:
        """The dimension restricted to a Python slice, and kept."""
        dim = self._dim(label)
        sizes, strides = self._slice.sizes, self._slice.strides
        start, stop, step = selection.indices(sizes[dim])
        if step < 1:
            raise ValueError("the step of a selection is at least 1")
        count = len(range(start, stop, step))
        if count == 0:
            raise ValueError(f"{selection} selects nothing of dimension {label!r} of size {sizes[dim]}")
        offset = self._slice.offset + start * strides[dim]
        sizes[dim] = count
        strides[dim] *= step
        return Shape(self._labels, Slice(offset=offset, sizes=sizes, strides=strides))

    def index(self, **coordinates: int) -> Shape:
        """Several dimensions fixed."""
        shape = self
        for label, i in coordinates.items():
            shape = shape.at(label, i)
        return shape

    def __len__(self) -> int:
        return len(self._slice)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Shape):
            return NotImplemented
        return self._labels == other._labels and self._slice == other._slice

    def __hash__(self) -> int:
        return hash((self._labels, self._slice))

    def __str__(self) -> str:
        return "{" + ",".join(f"{k}={v}" for k, v in zip(self._labels, self._slice.sizes, strict=True)) + "}"

    def __repr__(self) -> str:
        labels = ", ".join(f'"{label}"' for label in self._labels)
        return f"Shape {{ labels: [{labels}], slice: {self._slice!r} }}"

    def __reduce__(self) -> Any:
        return (Shape, (self.labels, self._slice))


class Extent(Mapping[str, int]):
    """Sizes by label, in order. `len` is the number of dimensions, `nelements` that of members."""

    __slots__ = ("_labels", "_sizes")

    def __init__(self, labels: Sequence[str], sizes: Sequence[int]) -> None:
        self._sizes = tuple(operator.index(size) for size in sizes)
        self._labels = _check_labels(labels, len(self._sizes))

    @property
    def labels(self) -> list[str]:
        return list(self._labels)

    @property
    def sizes(self) -> list[int]:
        return list(self._sizes)

    @property
    def nelements(self) -> int:
        return _product(self._sizes)

    @property
    def region(self) -> Region:
        return Region(self._labels, Slice.new_row_major(self._sizes))

    def __getitem__(self, label: str) -> int:
        try:
            return self._sizes[self._labels.index(label)]
        except ValueError:
            raise ValueError(f"no dimension {label!r} among {self.labels}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)

    def __contains__(self, label: object) -> bool:
        return label in self._labels

    def get(self, label: str, default: Any = None) -> Any:
        return self[label] if label in self._labels else default

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Extent):
            return NotImplemented
        return self._labels == other._labels and self._sizes == other._sizes

    def __hash__(self) -> int:
        return hash((self._labels, self._sizes))

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{k!r}: {v}" for k, v in zip(self._labels, self._sizes, strict=True)) + "}"

    def __reduce__(self) -> Any:
        return (Extent, (self.labels, self.sizes))


class Point(Mapping[str, int]):
    """A member's place: its rank, and a coordinate for each dimension of the extent."""

    __slots__ = ("_extent", "_rank")

    def __init__(self, rank: int, extent: Extent) -> None:
        self._rank = operator.index(rank)
        self._extent = extent
        if not 0 <= self._rank < extent.nelements:
            raise ValueError(f"rank {rank} is out of range for extent {extent}")

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def extent(self) -> Extent:
        return self._extent

    def size(self, label: str) -> int:
        return self._extent[label]

    def _coordinates(self) -> list[int]:
        rest, out = self._rank, []
        for size in reversed(self._extent.sizes):
            rest, coordinate = divmod(rest, size)
            out.append(coordinate)
        return out[::-1]

    def __getitem__(self, label: str) -> int:
        self._extent[label]
        return self._coordinates()[self._extent.labels.index(label)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._extent)

    def __len__(self) -> int:
        return len(self._extent)

    def __contains__(self, label: object) -> bool:
        return label in self._extent

    def get(self, label: str, default: Any = None) -> Any:
        return self[label] if label in self._extent else default

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Point):
            return NotImplemented
        return self._rank == other._rank and self._extent == other._extent

    def __hash__(self) -> int:
        return hash((self._rank, self._extent))

    def __repr__(self) -> str:
        sizes = self._extent.sizes
        coordinates = zip(self._extent.labels, self._coordinates(), sizes, strict=True)
        return "{" + ", ".join(f"{k!r}: {c}/{s}" for k, c, s in coordinates) + "}"

    def __reduce__(self) -> Any:
        return (Point, (self._rank, self._extent))
