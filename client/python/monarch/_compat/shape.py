"""Older names of the shape types."""

from __future__ import annotations

from monarch._actor.shape import Shape, Slice

NDSlice = Slice


class ShapeExt:
    """The operations of a mesh, on a bare shape."""

    @staticmethod
    def slice(shape: Shape, **kwargs: int | slice) -> Shape:
        for label, selector in kwargs.items():
            if isinstance(selector, slice):
                shape = shape.select(label, selector)
            else:
                shape = shape.at(label, selector)
        return shape
