"""Methods of an actor that others may call, and the ways to call them."""

from __future__ import annotations

import copy
import functools
import random
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Protocol, TypeVar, overload

from monarch import _runtime
from monarch._actor import pickling
from monarch._actor.answers import Description, collect_all, collect_one
from monarch._actor.context import context
from monarch._actor.errors import send_error
from monarch._actor.future import Future, check_timeout
from monarch._actor.receiver import Receiver
from monarch._actor.signature import Signature, signature_of
from monarch._actor.transmission import Transmission

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Concatenate, Literal

    from monarch._actor.context import Instance
    from monarch._actor.endpoint_types import MakesEndpoint, MakesPortEndpoint, Propagator
    from monarch._actor.members import Members
    from monarch._actor.port import Port
    from monarch._actor.readiness import Readiness
    from monarch._actor.shape import Shape
    from monarch._actor.value_mesh import ValueMesh
    from monarch._runtime import Inbox, Targets

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")

_CO_COROUTINE = 0x80
_PROPAGATORS = (None, "cached", "inspect", "mocked")


def is_coroutine_function(function: Any) -> bool:
    """As inspect's, which takes longer to import than a worker to start."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and bool(code.co_flags & _CO_COROUTINE)


class EndpointProperty:
    """What `@endpoint` leaves in the class: not callable; spawned meshes offer the ways to call it."""

    concurrent = False

    def __init__(
        self, method: Callable[..., Any], propagate: Any, explicit_response_port: bool, instrument: bool
    ) -> None:
        if not (
            propagate in _PROPAGATORS if isinstance(propagate, (str, type(None))) else callable(propagate)
        ):
            raise ValueError(
                f"propagate is None, 'cached', 'inspect', 'mocked' or a callable, not {propagate!r}"
            )
        self._method = method
        self._propagator = propagate
        self._explicit_response_port = explicit_response_port
        self._instrument = instrument
        self.takes_port = explicit_response_port  # the method does, as its first argument
        self.is_async = is_coroutine_function(method)
        self.__doc__ = method.__doc__
        self.__name__ = getattr(method, "__name__", "endpoint")

    def __get__(self, instance: Any, owner: Any = None) -> EndpointProperty:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"{self.__name__} is an endpoint: it is called on a mesh, as in mesh.{self.__name__}.call(...). Code that "
            "the actor itself needs belongs in a method without @endpoint"
        )


@overload
def endpoint(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
    *,
    propagate: Propagator = ...,
    explicit_response_port: Literal[False] = ...,
    instrument: bool = ...,
) -> Endpoint[P, R]: ...
@overload
def endpoint(
    method: Callable[Concatenate[Any, P], R],
    *,
    propagate: Propagator = ...,
    explicit_response_port: Literal[False] = ...,
    instrument: bool = ...,
) -> Endpoint[P, R]: ...
@overload
def endpoint(  # type: ignore[overload-cannot-match]
    method: Callable[Concatenate[Any, ...], Coroutine[Any, Any, R]],
    *,
    propagate: Propagator = ...,
    explicit_response_port: Literal[False] = ...,
    instrument: bool = ...,
) -> Endpoint[..., R]: ...
@overload
def endpoint(  # type: ignore[overload-cannot-match]
    method: Callable[Concatenate[Any, ...], R],
    *,
    propagate: Propagator = ...,
    explicit_response_port: Literal[False] = ...,
    instrument: bool = ...,
) -> Endpoint[..., R]: ...
@overload
def endpoint(
    method: Callable[Concatenate[Any, Port[R], P], Any],
    *,
    propagate: Propagator = ...,
    explicit_response_port: Literal[True],
    instrument: bool = ...,
) -> Endpoint[P, R]: ...
@overload
def endpoint(
    *, propagate: Propagator = ..., explicit_response_port: Literal[False] = ..., instrument: bool = ...
) -> MakesEndpoint: ...
@overload
def endpoint(
    *, propagate: Propagator = ..., explicit_response_port: Literal[True], instrument: bool = ...
) -> MakesPortEndpoint: ...
def endpoint(
    method: Any = None,
    *,
    propagate: Any = None,
    explicit_response_port: bool = False,
    instrument: bool = True,
) -> Any:
    """Makes a method callable from other processes.

    Args:
        method: the method, sync or async; a class has only one of the two kinds.
        propagate: how tensors' shapes pass through; for the tensor engine.
        explicit_response_port: the method gets a `Port` as first argument and answers by it, when and as often as it
            likes; what it returns is ignored.
        instrument: whether invocations are traced.
    """
    if method is None:
        return functools.partial(
            endpoint,
            propagate=propagate,
            explicit_response_port=explicit_response_port,
            instrument=instrument,
        )
    return EndpointProperty(method, propagate, explicit_response_port, instrument)


class EndpointTarget(Protocol):
    """A mesh, as far as its endpoints need it."""

    def _mesh_name(self) -> str: ...
    def _owner_label(self) -> str: ...
    def _class_name(self) -> str: ...
    def _shape_now(self) -> Shape: ...
    # None: one of its members is being started again.
    def _targets(self) -> Targets | None: ...
    # None unless messages can be sent to all at once.
    def _targets_now(self) -> Targets | None: ...
    def _readiness(self) -> Readiness: ...
    def _members(self) -> Members: ...
    def _stop_event(self) -> dict[str, Any] | None: ...
    # Whether the process of the mesh's owner is known to be dead.
    def _owner_is_gone(self) -> bool: ...


class Endpoint(Generic[P, R]):
    """An endpoint of a mesh of actors, bound to the mesh or slice it was taken from.

    Arguments are checked and pickled by the call itself, in the calling thread; the message goes out at the call and
    not when its future is looked at.
    """

    def __init__(self, mesh: EndpointTarget, name: str, declared: EndpointProperty | None) -> None:
        self._mesh = mesh
        self._name = name
        self._declared = declared
        self._size = len(mesh._shape_now())
        shape = mesh._shape_now()
        self._meta = _runtime.encode_value([name, shape.labels, shape.ndslice.sizes])
        self._call_name = f"{mesh._mesh_name()}.{name}()"
        self._collect_one = collect_one(self._describe)
        self._limit: float | None = None  # seconds
        self._signature: Signature | None = None
        if declared is not None:
            # self, and the port that the runtime adds.
            self._signature = signature_of(declared._method, 2 if declared.takes_port else 1)

    # --- time limits ---

    def with_timeout(self, seconds: float | None) -> Endpoint[P, R]:
        """This endpoint, for calls whose answers are awaited for at most `seconds`; None: for as long as it takes.

        Later the future has CallTimeoutError, and the callees are told: a call that has not begun never does, and an
        endpoint that runs sees it in `context().cancelled`. The time counts from the call, and includes the start of a
        mesh that is still being spawned. ValueError for a negative, infinite or NaN limit.

        `call(..., timeout=seconds)` and its like say the same in short, unless the method has a parameter `timeout` or
        takes any keyword (`**kwargs`): then `timeout` is the method's.
        """
        limited = copy.copy(self)
        limited._limit = None if seconds is None else check_timeout(seconds)
        limited._collect_one = collect_one(limited._describe)
        return limited

    def _owns_timeout(self) -> bool:
        """Whether a keyword argument `timeout` is for the method."""
        return self._signature is None or self._signature.takes("timeout")

    # --- the ways to call ---

    @overload
    def call(self, *args: P.args, **kwargs: P.kwargs) -> Future[ValueMesh[R]]: ...
    @overload
    def call(self, *args: Any, timeout: float | None, **kwargs: Any) -> Future[ValueMesh[R]]: ...
    def call(self, *args: Any, **kwargs: Any) -> Future[ValueMesh[R]]:
        """Calls every member; the future has all their answers, or the exception of the lowest rank that failed."""
        if "timeout" in kwargs and not self._owns_timeout():
            return self.with_timeout(kwargs.pop("timeout")).call(*args, **kwargs)
        receiver = self._send(args, kwargs, None, self._size)
        return Future._from_receiver(
            receiver, collect_all(self._describe, self._mesh._shape_now(), self._size)
        )

    @overload
    def call_one(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]: ...
    @overload
    def call_one(self, *args: Any, timeout: float | None, **kwargs: Any) -> Future[R]: ...
    def call_one(self, *args: Any, **kwargs: Any) -> Future[R]:
        """Calls the only member of a mesh of one."""
        if "timeout" in kwargs and not self._owns_timeout():
            return self.with_timeout(kwargs.pop("timeout")).call_one(*args, **kwargs)
        if self._size != 1:
            raise ValueError(f"call_one requires exactly 1 actor, but mesh has {self._size}")
        return Future._from_receiver(self._send(args, kwargs, None, 1), self._collect_one)

    @overload
    def choose(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]: ...
    @overload
    def choose(self, *args: Any, timeout: float | None, **kwargs: Any) -> Future[R]: ...
    def choose(self, *args: Any, **kwargs: Any) -> Future[R]:
        """Calls one member, chosen at random."""
        if "timeout" in kwargs and not self._owns_timeout():
            return self.with_timeout(kwargs.pop("timeout")).choose(*args, **kwargs)
        rank = random.randrange(self._size)
        receiver = self._send(args, kwargs, rank, 1)
        return Future._from_receiver(
            receiver, self._collect_one if self._limit is None else collect_one(self._describe, rank)
        )

    @overload
    def stream(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[Future[R]]: ...
    @overload
    def stream(self, *args: Any, timeout: float | None, **kwargs: Any) -> Iterator[Future[R]]: ...
    def stream(self, *args: Any, **kwargs: Any) -> Iterator[Future[R]]:
        """Calls every member; gives as many futures, done in the order in which answers arrive."""
        if "timeout" in kwargs and not self._owns_timeout():
            return self.with_timeout(kwargs.pop("timeout")).stream(*args, **kwargs)
        receiver = self._send(args, kwargs, None, self._size)
        receiver.single = False
        receiver.inbox.set_any_answer_ends_wait()

        def futures() -> Generator[Future[R], None, None]:
            for _ in range(self._size):
                yield Future._from_receiver(receiver, self._collect_one)

        return futures()

    def broadcast(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Sends to every member and asks for no answer: there is none to limit the time of."""
        self._post(args, kwargs, None)

    def rref(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        if self._declared is not None and self._declared._propagator in ("cached", "mocked"):
            raise NotImplementedError(
                f"propagate={self._declared._propagator!r} is not available for actor endpoints"
            )
        raise NotImplementedError("rref needs the tensor engine")

    if not TYPE_CHECKING:  # Checkers say it themselves.

        def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
            raise TypeError(
                f"{self._call_name} says not whom to call: use .call(...), .call_one(...), .choose(...), .stream(...) "
                "or .broadcast(...)"
            )

    # --- sending ---

    def _describe(self) -> Description:
        mesh = self._mesh
        return Description(
            self._call_name,
            mesh._owner_label(),
            mesh._mesh_name(),
            mesh._class_name(),
            mesh._owner_is_gone(),
            self._limit,
            mesh._members(),
        )

    def _send(self, args: Any, kwargs: Any, only: int | None, answers: int) -> Receiver:
        """Sends to all members, or only to one; the receiver gets as many answers."""
        instance = context().actor_instance
        runtime = instance.runtime
        parts = self._pack(args, kwargs)
        targets = self._mesh._targets_now() if only is None and self._limit is None else None
        if targets is not None:
            try:
                return Receiver(runtime, runtime.call(instance.actor, targets, self._meta, parts))
            except _runtime.StatusError as error:
                raise send_error(error) from None
        call = runtime.open_call(instance.actor, answers, self._limit)
        deadline = None if self._limit is None else time.monotonic() + self._limit
        self._transmission(instance, parts, call).start(only, answers, deadline)
        return Receiver(runtime, call)

    def _post(self, args: Any, kwargs: Any, only: int | None) -> None:
        self._refuse_limit()
        instance = context().actor_instance
        self._transmission(instance, self._pack(args, kwargs), None).start(only, 0)

    def _refuse_limit(self) -> None:
        if self._limit is not None:
            raise ValueError(
                f"{self._call_name} has a time limit, and nothing here waits for its answer: limits are for call, "
                "call_one, choose and stream"
            )

    def _pack(self, args: Any, kwargs: Any) -> list[Any]:
        """Checks and pickles the arguments."""
        if self._signature is not None:
            self._signature.check(args, kwargs)
        return pickling.dumps_call(args, kwargs)

    def _transmission(self, instance: Instance, parts: list[Any], call: Inbox | None) -> Transmission:
        return Transmission(instance, self._mesh, self._call_name, self._meta, parts, call)

    def _send_to_port(self, args: Any, kwargs: Any, port: Port[Any], selection: str) -> None:
        """As broadcast, or to one at random, with the answers going to a port of this process."""
        self._refuse_limit()
        only = random.randrange(self._size) if selection == "choose" else None
        answers = self._size if only is None else 1
        parts = self._pack(args, kwargs)
        self._transmission(context().actor_instance, parts, port._local_inbox()).start(only, answers)


def send(
    endpoint: Endpoint[..., R],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    port: Port[R] | None = None,
    selection: str = "all",
) -> None:
    """Sends a call whose answers go to `port`; without one, as `broadcast`. `selection` is "all" or "choose"."""
    if selection not in ("all", "choose"):
        raise ValueError(f"selection is 'all' or 'choose', not {selection!r}")
    if port is not None:
        endpoint._send_to_port(args, kwargs, port, selection)
    elif selection == "all":
        endpoint._post(args, kwargs, None)
    else:
        endpoint._post(args, kwargs, random.randrange(endpoint._size))


class NotAnEndpoint:
    """A member of the actor's class that is no endpoint, as seen on a mesh."""

    def __init__(self, mesh: Any, class_name: str, name: str, value: Any) -> None:
        self._mesh = mesh
        self._class_name = class_name
        self._name = name
        self._value = value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"{self._class_name}.{self._name} is not an endpoint, so it cannot be called on a mesh. Decorate it with "
            f"@endpoint, or wrap it: as_endpoint(mesh.{self._name}).call(...)"
        )


# The endpoint by which as_endpoint reaches plain methods; every actor has it.
INVOKE = "_monarch_invoke"
INVOKE_EXPLICIT = "_monarch_invoke_explicit"


def invoke(actor: Any, *arguments: Any) -> Any:
    *port, method, args, kwargs = arguments
    return getattr(actor, method)(*port, *args, **kwargs)


class _BoundMethodEndpoint(Endpoint[..., Any]):
    def __init__(self, target: NotAnEndpoint, invoke: str) -> None:
        super().__init__(target._mesh, invoke, None)
        self._method_name = target._name
        self._method = target._value
        self._call_name = f"{target._mesh._mesh_name()}.{target._name}()"

    def _owns_timeout(self) -> bool:
        return Signature(self._method, 0).takes("timeout")

    def _pack(self, args: Any, kwargs: Any) -> list[Any]:
        return super()._pack((self._method_name, args, kwargs), {})


@overload
def as_endpoint(
    bound: Callable[P, Coroutine[Any, Any, R]],
    *,
    propagate: Propagator = ...,
    explicit_response_port: Literal[False] = ...,
) -> Endpoint[P, R]: ...
@overload
def as_endpoint(
    bound: Callable[P, R], *, propagate: Propagator = ..., explicit_response_port: Literal[False] = ...
) -> Endpoint[P, R]: ...
@overload
def as_endpoint(
    bound: Callable[Concatenate[Port[R], P], Any],
    *,
    propagate: Propagator = ...,
    explicit_response_port: Literal[True],
) -> Endpoint[P, R]: ...
def as_endpoint(bound: Any, *, propagate: Any = None, explicit_response_port: bool = False) -> Any:
    """An endpoint for a plain method, as found on a mesh."""
    if not isinstance(bound, NotAnEndpoint):
        raise ValueError(f"as_endpoint takes a method of a mesh that is not an endpoint, not {bound!r}")
    return _BoundMethodEndpoint(bound, INVOKE_EXPLICIT if explicit_response_port else INVOKE)


class Accumulator(Generic[P, R, A]):
    """Folds the answers of a mesh, in the order in which they arrive."""

    def __init__(self, endpoint: Endpoint[P, R], identity: A, combine: Callable[[A, R], A]) -> None:
        self._endpoint = endpoint
        self._identity = identity
        self._combine = combine

    def accumulate(self, *args: P.args, **kwargs: P.kwargs) -> Future[A]:
        """Calls the endpoint on every member now; the future has combine(...combine(identity, first)..., last)."""
        futures = list(self._endpoint.stream(*args, **kwargs))

        def fold() -> A:
            value = self._identity
            for future in futures:
                value = self._combine(value, future.get())
            return value

        return Future._from_function(fold)
