"""The operations that all meshes share."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from monarch._actor.shape import Extent, Shape, Slice

if TYPE_CHECKING:
    from typing_extensions import Self


def _split_sizes(label: str, size: int, parts: Sequence[str], given: dict[str, int]) -> list[int]:
    """The sizes of the dimensions that `label` is split into; at most one is not given."""
    sizes = [given.get(part) for part in parts]
    known = 1
    for part_size in sizes:
        known *= part_size if part_size is not None else 1
    if sizes.count(None) > 1:
        unknown = [part for part, part_size in zip(parts, sizes, strict=True) if part_size is None]
        raise ValueError(f"cannot infer the sizes of both {unknown}; give all but one")
    if known < 1 or size % known or (None not in sizes and known != size):
        raise ValueError(
            f"dimension {label!r} of size {size} is not evenly divisible into {dict(zip(parts, sizes, strict=True))}"
        )
    return [size // known if part_size is None else part_size for part_size in sizes]


def point_shape(ndslice: Slice, index: int) -> Shape:
    """The shape of one member of a mesh, without dimensions; by its place in row-major order."""
    return Shape([], Slice(offset=ndslice[index], sizes=[], strides=[]))


class MeshTrait(ABC):
    """Slicing and reshaping. A class brings `_ndslice`, `_labels` and `_new_with_shape`."""

    __slots__ = ()

    @property
    @abstractmethod
    def _ndslice(self) -> Slice: ...

    @property
    @abstractmethod
    def _labels(self) -> Sequence[str]: ...

    @abstractmethod
    def _new_with_shape(self, shape: Shape) -> Any: ...

    def _shape_now(self) -> Shape:
        return Shape(self._labels, self._ndslice)

    def slice(self, **kwargs: int | slice) -> Self:
        """The members at an index (the dimension goes) or in a Python slice (it stays), by dimension."""
        shape = self._shape_now()
        for label, selector in kwargs.items():
            if label not in shape.labels:
                raise TypeError(f"mesh does not have dimension {label!r}; it has {shape.labels}")
            if isinstance(selector, slice):
                shape = shape.select(label, selector)
                continue
            index = operator.index(selector)
            size = shape.extent[label]
            if not 0 <= index < size:
                raise IndexError(f"index {index} is out of range for dimension {label!r} of size {size}")
            shape = shape.at(label, index)
        return cast("Self", self._new_with_shape(shape))

    def split(self, **kwargs: Any) -> Self:
        """Dimensions replaced by several: split(host=("dp", "pp"), pp=16)."""
        labels, ndslice = list(self._labels), self._ndslice
        splits: dict[str, Sequence[str]] = {}
        given: dict[str, int] = {}
        for name, value in kwargs.items():
            if name in labels:
                if isinstance(value, str) or not isinstance(value, Sequence):
                    raise ValueError(f"{name!r} is split into a sequence of names, not {value!r}")
                splits[name] = value
            elif isinstance(value, int):
                given[name] = value
            else:
                raise ValueError(f"the size of the new dimension {name!r} is an int, not {value!r}")
        unused = set(given) - {part for parts in splits.values() for part in parts}
        if unused:
            raise ValueError(f"sizes given for dimensions that no split makes: {sorted(unused)}")
        new_labels: list[str] = []
        sizes: list[int] = []
        strides: list[int] = []
        for label, size, stride in zip(labels, ndslice.sizes, ndslice.strides, strict=True):
            parts = splits.get(label, (label,))
            part_sizes = _split_sizes(label, size, parts, given) if label in splits else [size]
            steps = []
            step = stride
            for part_size in reversed(part_sizes):
                steps.append(step)
                step *= part_size
            new_labels += parts
            sizes += part_sizes
            strides += reversed(steps)
        if len(set(new_labels)) != len(new_labels):
            raise ValueError(f"a dimension name appears twice in {new_labels}")
        shape = Shape(new_labels, Slice(offset=ndslice.offset, sizes=sizes, strides=strides))
        return cast("Self", self._new_with_shape(shape))

    def flatten(self, name: str) -> Self:
        """All members in one dimension."""
        ndslice = self._ndslice
        dense = Slice.new_row_major(ndslice.sizes)
        for size, stride, wanted in zip(ndslice.sizes, ndslice.strides, dense.strides, strict=True):
            if size > 1 and stride != wanted:
                raise ValueError("cannot flatten sparse mesh: its members are not next to each other")
        return cast(
            "Self",
            self._new_with_shape(
                Shape([name], Slice(offset=ndslice.offset, sizes=[len(ndslice)], strides=[1]))
            ),
        )

    def rename(self, **kwargs: str) -> Self:
        """Dimensions under other names: rename(gpus="ranks")."""
        return self.split(**{old: (new,) for old, new in kwargs.items()})

    def size(self, dim: None | str | Sequence[str] = None) -> int:
        """The number of members, or the (product of the) sizes of dimensions."""
        sizes = self.sizes
        names = list(sizes) if dim is None else [dim] if isinstance(dim, str) else list(dim)
        out = 1
        for name in names:
            if name not in sizes:
                raise KeyError(f"{name!r} is not a dimension; there are {list(sizes)}")
            out *= sizes[name]
        return out

    @property
    def sizes(self) -> dict[str, int]:
        return dict(zip(self._labels, self._ndslice.sizes, strict=True))

    @property
    def extent(self) -> Extent:
        return Extent(self._labels, self._ndslice.sizes)

    def __len__(self) -> int:
        return len(self._ndslice)
