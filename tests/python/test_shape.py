"""Shapes, points and mesh operations; no processes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from monarch._actor.mesh_trait import MeshTrait
from monarch.actor import Extent, NDSlice, Point, Region, Shape, Slice


def row_major(**sizes: int) -> Shape:
    return Shape.row_major(sizes)


class Mesh(MeshTrait):
    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    @property
    def _ndslice(self) -> Slice:
        return self.shape.ndslice

    @property
    def _labels(self) -> Sequence[str]:
        return self.shape.labels

    def _new_with_shape(self, shape: Shape) -> Mesh:
        return Mesh(shape)


def test_slice_ranks_and_coordinates() -> None:
    s = Slice(offset=1, sizes=[2, 3], strides=[10, 2])
    assert NDSlice is Slice
    assert list(s) == [1, 3, 5, 11, 13, 15]
    assert [s.index(rank) for rank in s] == list(range(6))
    assert s.coordinates(13) == [1, 1]
    assert s.nditem([1, 2]) == 15
    assert (s[2], s[1:4], s.get(5), len(s), s.ndim) == (5, (3, 5, 11), 15, 6, 2)
    assert repr(Slice.new_row_major([2, 3])) == "Slice { offset: 0, sizes: [2, 3], strides: [3, 1] }"
    for rank in (0, 2, 4, 12, 16, 100):
        with pytest.raises(ValueError):
            s.index(rank)
    with pytest.raises(IndexError):
        s[6]
    with pytest.raises(TypeError):
        s[-1]
    with pytest.raises(IndexError):
        s.nditem([0, 3])
    with pytest.raises(ValueError):
        s.get(6)


@pytest.mark.parametrize(
    "sizes, strides", [([2], [1, 1]), ([2, 2], [1, 1]), ([3, 2], [2, 4]), ([2, 2], [2, 0])]
)
def test_bad_slices_are_refused(sizes: list[int], strides: list[int]) -> None:
    with pytest.raises(ValueError):
        Slice(offset=0, sizes=sizes, strides=strides)


def test_slice_from_list() -> None:
    ranks = [0, 1, 2, 10, 12, 14, 5]
    assert [rank for s in Slice.from_list(ranks) for rank in s] == ranks


def test_shape() -> None:
    s = row_major(hosts=2, gpus=4)
    assert str(s) == "{hosts=2,gpus=4}"
    assert repr(s).startswith('Shape { labels: ["hosts", "gpus"], slice: ')
    assert s.at("hosts", 1).ranks() == [4, 5, 6, 7]
    assert s.select("gpus", slice(1, 4, 2)).ranks() == [1, 3, 5, 7]
    assert s.index(hosts=1, gpus=2).ranks() == [6]
    assert s.coordinates(6) == {"hosts": 1, "gpus": 2}
    assert len(Shape.unity()) == 1
    for bad in (lambda: s.at("x", 0), lambda: s.at("gpus", 4), lambda: s.select("gpus", slice(4, 4))):
        with pytest.raises(ValueError):
            bad()
    with pytest.raises(OverflowError):
        s.at("gpus", -1)


def test_extent_and_point() -> None:
    e = Extent(["hosts", "gpus"], [1, 2])
    assert isinstance(e, Mapping)
    assert (repr(e), len(e), e.nelements, dict(e)) == (
        "{'hosts': 1, 'gpus': 2}",
        2,
        2,
        {"hosts": 1, "gpus": 2},
    )
    p = Point(1, e)
    assert (repr(p), p["gpus"], p.size("gpus"), p.rank) == ("{'hosts': 0/1, 'gpus': 1/2}", 1, 2, 1)
    assert "x" not in p
    for mapping in (e, p):
        with pytest.raises(ValueError):
            mapping["x"]  # type: ignore[index]


def test_region() -> None:
    r = row_major(a=2, b=3).at("a", 1).region
    assert r.point_of_base_rank(4) == Point(1, Extent(["b"], [3]))
    assert r.as_shape() == row_major(a=2, b=3).at("a", 1)
    assert Region(["b"], r.slice()) == r


@pytest.mark.parametrize(
    "thing",
    [
        Slice.new_row_major([2, 3]),
        row_major(a=2, b=3).at("a", 1),
        Extent(["a"], [3]),
        Point(1, Extent(["a"], [3])),
        row_major(a=2).region,
    ],
)
def test_value_types_travel(thing: Any) -> None:
    assert pickle.loads(pickle.dumps(thing)) == thing
    assert hash(pickle.loads(pickle.dumps(thing))) == hash(thing)


def test_mesh_slices() -> None:
    m = Mesh(row_major(hosts=2, gpus=4))
    assert m.slice(hosts=1).shape.ranks() == [4, 5, 6, 7]
    assert m.slice(hosts=1).sizes == {"gpus": 4}
    assert m.slice(hosts=slice(0, 1), gpus=slice(0, 4, 2)).sizes == {"hosts": 1, "gpus": 2}
    assert (len(m), m.size(), m.size("gpus"), m.size(["hosts", "gpus"])) == (8, 8, 4, 8)
    for index in (-1, 2):
        with pytest.raises(IndexError):
            m.slice(hosts=index)
    with pytest.raises(TypeError):
        m.slice(x=0)
    with pytest.raises(KeyError):
        m.size("x")


def test_mesh_split_flatten_rename() -> None:
    m = Mesh(row_major(host=2, gpu=8))
    assert m.split(gpu=("dp", "tp"), tp=4).sizes == {"host": 2, "dp": 2, "tp": 4}
    assert m.split(gpu=("dp", "tp"), tp=4).slice(tp=1).shape.ranks() == [1, 5, 9, 13]
    assert m.flatten("rank").sizes == {"rank": 16}
    assert m.slice(host=1).flatten("r").shape.ranks() == list(range(8, 16))
    assert m.rename(host="h").sizes == {"h": 2, "gpu": 8}
    with pytest.raises(ValueError, match="cannot flatten sparse mesh"):
        m.slice(gpu=slice(0, 2)).flatten("r")


@pytest.mark.parametrize(
    "kwargs",
    [
        {"gpu": "dp"},
        {"gpu": ("a", "b"), "a": "x"},
        {"gpu": ("a", "b", "c"), "a": 2},
        {"gpu": ("a", "b"), "a": 3},
        {"gpu": ("host", "b"), "b": 4},
        {"gpu": ("a", "b"), "a": 2, "z": 2},
    ],
)
def test_bad_splits_are_refused(kwargs: Any) -> None:
    with pytest.raises(ValueError):
        Mesh(row_major(host=2, gpu=8)).split(**kwargs)
