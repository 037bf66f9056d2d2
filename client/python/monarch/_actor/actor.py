"""The base class of actors, and the rules for their classes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from monarch._actor.endpoint import EndpointProperty, is_coroutine_function

if TYPE_CHECKING:
    import logging
    from collections.abc import Sequence

    from typing_extensions import Self

    from monarch._actor.failure import MeshFailure
    from monarch._actor.future import Future
    from monarch._actor.shape import Extent

_OF_A_MESH = "is a method of meshes: what spawn() returns has it, an actor object has not"


class Actor:
    """An object that lives in a process of its mesh and handles one message at a time.

    Subclass it and decorate with `@endpoint` what others may call. Create it with `procs.spawn(name, Class, ...)`,
    which returns a mesh of it. Everything of one actor, `__init__` too, runs on one thread.
    """

    @cached_property
    def logger(self) -> logging.Logger:
        """A logger by the name of the class."""
        import logging

        logger = logging.getLogger(type(self).__name__)
        logger.setLevel(logging.DEBUG)
        return logger

    def __supervise__(self, failure: MeshFailure) -> bool:
        """Called for each failed member of what this actor spawned. True: handled; else this actor fails too."""
        return False

    def __cleanup__(self, exc: Exception | None) -> Any:
        """Called once at the end: with None when stopped, else with what the actor failed of."""

    # Private, and there for programs that override it: only strict peer semantics ask it.
    def _handle_undeliverable_message(self, message: Any) -> bool:
        return False

    # For type checkers: spawn() is typed to return the class, and returns a mesh.

    def slice(self, **kwargs: int | slice) -> Self:
        raise NotImplementedError(f"slice() {_OF_A_MESH}")

    def split(self, **kwargs: Any) -> Self:
        raise NotImplementedError(f"split() {_OF_A_MESH}")

    def flatten(self, name: str) -> Self:
        raise NotImplementedError(f"flatten() {_OF_A_MESH}")

    def rename(self, **kwargs: str) -> Self:
        raise NotImplementedError(f"rename() {_OF_A_MESH}")

    def size(self, dim: None | str | Sequence[str] = None) -> int:
        raise NotImplementedError(f"size() {_OF_A_MESH}")

    @property
    def sizes(self) -> dict[str, int]:
        raise NotImplementedError(f"sizes {_OF_A_MESH}")

    @property
    def extent(self) -> Extent:
        raise NotImplementedError(f"extent {_OF_A_MESH}")

    if TYPE_CHECKING:

        def __len__(self) -> int: ...

    def stop(self, reason: str = "stopped by client") -> Future[None]:
        raise NotImplementedError(f"stop() {_OF_A_MESH}")

    @property
    def initialized(self) -> Future[None]:
        raise NotImplementedError(f"initialized {_OF_A_MESH}")


def overrides(cls: type, name: str) -> bool:
    """Whether the class has a hook of its own."""
    return getattr(cls, name, None) is not getattr(Actor, name)


def endpoints_of(cls: type) -> dict[str, EndpointProperty]:
    """All endpoints, inherited ones too."""
    found: dict[str, EndpointProperty] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, EndpointProperty):
                found[name] = value
            else:
                found.pop(name, None)
    return found


def is_async_class(cls: type) -> bool:
    return any(declared.is_async for declared in endpoints_of(cls).values())


def check_class(cls: type, reserved: frozenset[str]) -> dict[str, EndpointProperty]:
    """The endpoints of a class that keeps the rules; ValueError for one that does not."""
    endpoints = endpoints_of(cls)
    for name in endpoints:
        if name in reserved:
            raise ValueError(
                f"{cls.__qualname__}: endpoint {name!r} has the name of an attribute of ActorMesh"
            )
    kinds = {declared.is_async for declared in endpoints.values()}
    if len(kinds) > 1:
        raise ValueError(
            f"{cls.__qualname__} mixes both async and sync endpoints; an actor's endpoints are of one kind"
        )
    if kinds and overrides(cls, "__cleanup__"):
        wanted = kinds == {True}
        if is_coroutine_function(cls.__cleanup__) != wanted:  # type: ignore[attr-defined]
            kind = "async" if wanted else "sync"
            raise ValueError(
                f"{cls.__qualname__}: its endpoints are {kind}, so __cleanup__ has to be {kind} as well"
            )
    return endpoints
