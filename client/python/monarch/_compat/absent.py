"""Names that can be imported, and raise when they are used: machinery that monarchd does not have."""

from __future__ import annotations

from typing import Any, NoReturn

# Whether this is a program packed into one file.
IN_PAR = False

# What the probe of a future ends with.
_PROBE_SUCCESS_VALUE = 42


def has_tensor_engine() -> bool:
    """Whether tensors can be spread over meshes."""
    return False


class _Absent(type):
    """A class that can be named in annotations, and neither made nor looked into."""

    def _refuse(cls) -> NoReturn:
        raise NotImplementedError(
            f"{cls.__name__} is internal machinery that monarchd does not have; use the names of monarch.actor"
        )

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        cls._refuse()

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        cls._refuse()


def make(name: str) -> Any:
    """The class that stands for a name that does not exist here."""
    return _Absent(name, (), {"__module__": __name__})
