"""ValueMesh: one value for each member of a mesh; no processes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from monarch.actor import Shape, Slice, ValueMesh


def row_major(**sizes: int) -> Shape:
    return Shape.row_major(sizes)


def letters() -> ValueMesh[str]:
    return ValueMesh(row_major(a=2, b=3), list("abcdef"))


def test_the_number_of_values_is_that_of_the_shape() -> None:
    assert len(letters()) == 6
    for values in ([1], [1, 2, 3]):
        with pytest.raises(ValueError, match="2 members"):
            ValueMesh(row_major(a=2), values)


def test_get_is_by_local_linear_rank() -> None:
    assert letters().get(4) == "e"
    assert letters().slice(a=1).get(0) == "d"
    for rank in (-1, 6):
        with pytest.raises(ValueError, match=r"out of range \(len=6\)"):
            letters().get(rank)


def test_item_needs_all_coordinates_and_no_other() -> None:
    assert letters().item(a=1, b=2) == "f"
    with pytest.raises(KeyError):
        letters().item(a=1)
    with pytest.raises(KeyError, match="item has extra dimensions"):
        letters().item(a=1, b=1, c=1)
    with pytest.raises(IndexError):
        letters().item(a=2, b=0)
    assert ValueMesh(Shape.unity(), [9]).item() == 9


def test_values_are_in_rank_order() -> None:
    assert letters().values() == list("abcdef")


def test_iteration_is_over_pairs_of_point_and_value() -> None:
    pairs = list(letters().slice(a=1))
    assert [(point.rank, dict(point), value) for point, value in pairs] == [
        (0, {"b": 0}, "d"),
        (1, {"b": 1}, "e"),
        (2, {"b": 2}, "f"),
    ]
    assert list(letters().slice(a=1).items()) == pairs


def test_values_follow_mesh_operations() -> None:
    mesh = letters()
    assert mesh.slice(b=slice(0, 3, 2)).values() == list("acdf")
    assert mesh.slice(b=slice(0, 3, 2)).item(a=1, b=1) == "f"
    assert mesh.slice(b=slice(1, 3)).slice(b=1, a=0).values() == ["c"]
    assert mesh.flatten("x").item(x=3) == "d"
    assert mesh.split(b=("c", "d"), d=1).item(a=1, c=2, d=0) == "f"
    assert mesh.rename(a="z").sizes == {"z": 2, "b": 3}
    assert (mesh.size(), mesh.size("b"), mesh.extent.labels) == (6, 3, ["a", "b"])


def test_from_indexed_takes_the_later_of_two_pairs_and_needs_all_ranks() -> None:
    shape = row_major(a=3)
    assert ValueMesh.from_indexed(shape, [(2, "c"), (0, "x"), (1, "b"), (0, "a")]).values() == list("abc")
    with pytest.raises(ValueError, match="expected 3.*contains 2"):
        ValueMesh.from_indexed(shape, [(0, 1), (1, 2)])
    with pytest.raises(ValueError):
        ValueMesh.from_indexed(shape, [(0, 1), (1, 2), (2, 3), (3, 4)])


def test_repr_has_the_extent_and_a_line_for_each_item() -> None:
    expected = "ValueMesh({'a': 2}):\n  ({'a': 0/2}, 1),\n  ({'a': 1/2}, 2),"
    assert repr(ValueMesh(row_major(a=2), [1, 2])) == expected


def test_pickling_keeps_shape_and_values() -> None:
    copy = pickle.loads(pickle.dumps(letters().slice(a=1)))
    assert (type(copy), copy.sizes, copy.values()) == (ValueMesh, {"b": 3}, list("def"))


def test_a_value_mesh_of_a_type_is_the_class_itself() -> None:
    assert ValueMesh[int] is ValueMesh
    assert isinstance(ValueMesh[int](Shape.unity(), [1]), ValueMesh)


def test_it_takes_no_other_attributes() -> None:
    mesh: Any = letters()
    with pytest.raises(AttributeError):
        mesh.other = 1


@pytest.mark.parametrize("equal", [7, "x", b"y", None, True])
def test_equal_neighbours_are_kept_once(equal: Any) -> None:
    mesh = ValueMesh(row_major(a=1000), [equal] * 500 + [equal, 0, 0, *[equal] * 497])
    assert len(mesh._runs._cells) == 3
    assert [mesh.get(rank) for rank in (499, 500, 501, 502, 503, 999)] == [equal, equal, 0, 0, equal, equal]
    assert mesh.slice(a=slice(501, 504)).values() == [0, 0, equal]


def test_values_that_only_compare_equal_stay_apart() -> None:
    values: list[Any] = [1, True, 1.0, 0.0, -0.0, [], []]
    kept = ValueMesh(row_major(a=7), values).values()
    assert [repr(value) for value in kept] == [repr(value) for value in values]
    assert kept[5] is values[5]
    assert kept[6] is values[6]


def payloads(count: int, payload: bytes) -> tuple[ValueMesh[Any], list[bytes]]:
    """A mesh of pickled values, and those that were loaded."""
    loaded: list[bytes] = []

    def load(data: bytes) -> Any:
        loaded.append(data)
        return pickle.loads(data)

    shape = Shape(["a"], Slice.new_row_major([count]))
    return ValueMesh._from_payloads(shape, [payload] * count, load, lambda a, b: a == b), loaded


def test_elements_are_unpickled_once_when_they_are_looked_at() -> None:
    mesh, loaded = payloads(3, pickle.dumps([1]))
    assert loaded == []
    assert mesh.get(1) is mesh.get(1)
    assert len(loaded) == 1
    assert mesh.slice(a=1).item() is mesh.get(1)


def test_equal_payloads_are_kept_once_and_give_each_rank_its_own_object() -> None:
    mesh, loaded = payloads(3, pickle.dumps([1]))
    assert len(mesh._runs._cells) == 1
    first, second, third = mesh.values()
    first.append(2)
    assert (second, third) == ([1], [1])
    plain, loaded = payloads(100, pickle.dumps("same"))
    assert plain.values() == ["same"] * 100
    assert len(loaded) == 1


def test_a_payload_is_let_go_once_all_its_values_are_loaded() -> None:
    mesh, _ = payloads(2, pickle.dumps([1]))
    mesh.get(0)
    assert mesh._runs._cells[0]._load is not None
    mesh.get(1)
    assert mesh._runs._cells[0]._load is None
    assert mesh.values() == [[1], [1]]
