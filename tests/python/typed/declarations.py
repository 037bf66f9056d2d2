"""Ways to declare endpoints and to reach methods: what is right and what is wrong to a type checker."""

from __future__ import annotations

from typing import Any, TypeVar

from monarch.actor import (
    Accumulator,
    Actor,
    Channel,
    Endpoint,
    Future,
    Port,
    ProcMesh,
    ValueMesh,
    as_endpoint,
    concurrent_endpoint,
    endpoint,
    get_or_spawn_controller,
    send,
    this_proc,
)
from typing_extensions import assert_type


class Worker(Actor):
    def __init__(self, scale: float) -> None:
        self.scale = scale

    @concurrent_endpoint
    async def fetch(self, name: str) -> bytes:
        return name.encode()

    @concurrent_endpoint(propagate=None)
    async def fetch_more(self, name: str, count: int = 1) -> list[bytes]:
        return [name.encode()] * count

    @concurrent_endpoint(explicit_response_port=True)
    async def subscribe(self, port: Port[int], every: float) -> None:
        port.send(int(every))

    def helper(self, name: str) -> int:
        return len(name)

    async def async_helper(self, name: str) -> int:
        return len(name)

    def port_helper(self, port: Port[bool], name: str) -> None:
        port.send(bool(name))


class Special(Worker):
    @endpoint
    async def inherited(self) -> bool:
        return True


workers = this_proc().spawn("workers", Special, 0.5)

# Concurrent endpoints are called as others are.
assert_type(workers.fetch.call_one("a"), Future[bytes])
assert_type(workers.fetch_more.call("a", count=2), Future[ValueMesh[list[bytes]]])
assert_type(workers.subscribe.call_one(every=0.5), Future[int])
assert_type(workers.inherited.call_one(), Future[bool])
workers.fetch.call_one(1)  # wrong
workers.subscribe.call_one()  # wrong

# Plain methods become endpoints with the same arguments.
assert_type(as_endpoint(workers.helper).call_one("a"), Future[int])
assert_type(as_endpoint(workers.async_helper).call_one("a"), Future[int])
assert_type(as_endpoint(workers.port_helper, explicit_response_port=True).call_one("a"), Future[bool])
as_endpoint(workers.helper).call_one(1)  # wrong
as_endpoint(workers.port_helper, explicit_response_port=True).call_one(1)  # wrong

# Who takes an endpoint says which.
fetch: Endpoint[[str], bytes] = workers.fetch
assert_type(fetch.call_one("a").get(), bytes)
bad: Endpoint[[int], bytes] = workers.fetch  # wrong
assert_type(Accumulator(workers.fetch, 0, lambda total, got: total + len(got)).accumulate("a"), Future[int])
Accumulator(workers.fetch, 0, lambda total, got: total + len(got)).accumulate(1)  # wrong

port, receiver = Channel[bytes].open()
assert_type(receiver.recv().get(), bytes)
port.send("a")  # wrong
send(workers.fetch, ("a",), {}, port)
send(workers.inherited, (), {}, port)  # wrong

# Controllers are as meshes that are spawned.
assert_type(get_or_spawn_controller("worker", Worker, 1.0), Future[Worker])
assert_type(get_or_spawn_controller("worker", Worker, 1.0).get().fetch.call_one("a").get(), bytes)
get_or_spawn_controller("worker", Worker, "a")  # wrong

# Code for any class of actors.
T = TypeVar("T", bound=Actor)


def spawn_twice(procs: ProcMesh, cls: type[T], *args: Any, **kwargs: Any) -> tuple[T, T]:
    return procs.spawn("first", cls, *args, **kwargs), procs.spawn("second", cls, *args, **kwargs)


assert_type(spawn_twice(this_proc(), Worker, 1.0)[0], Worker)


class Wrong(Actor):
    @concurrent_endpoint  # wrong
    def not_async(self) -> int:
        return 1

    @endpoint(propagate="sometimes")  # wrong
    def propagates(self) -> int:
        return 1

    @endpoint(explicit_response_port=True)  # wrong
    def no_port(self, count: int) -> None: ...
