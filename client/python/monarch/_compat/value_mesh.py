"""A value mesh from plain lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monarch._actor.shape import Shape, Slice
from monarch._actor.value_mesh import ValueMesh


def _make_test_value_mesh(
    labels: Sequence[str], sizes: Sequence[int], values: Sequence[Any]
) -> ValueMesh[Any]:
    return ValueMesh(Shape(labels, Slice.new_row_major(sizes)), values)
