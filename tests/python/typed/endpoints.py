"""Calls of endpoints: what their arguments and results are to a type checker."""

from __future__ import annotations

from collections.abc import Iterator

from monarch.actor import Actor, Future, Port, Restart, ValueMesh, endpoint, this_host
from typing_extensions import assert_type


class Plain(Actor):
    def __init__(self, start: int, title: str = "") -> None:
        self.value = start
        self.title = title

    @endpoint
    def add(self, amount: int, *, twice: bool = False) -> int:
        return amount * (2 if twice else 1)

    @endpoint
    def nothing(self) -> None:
        return None

    @endpoint()
    def with_brackets(self, text: str) -> list[str]:
        return [text]

    @endpoint(propagate="inspect", instrument=False)
    def with_options(self, text: str) -> list[str]:
        return [text]

    @endpoint(explicit_response_port=True)
    def by_port(self, port: Port[str], count: int) -> None:
        port.send(str(count))

    @endpoint
    def many(self, *values: int) -> int:
        return len(values)

    # Arguments are checked by pyright, and by mypy without its strict mode.
    @endpoint
    def anything(self, *values: int, **named: str) -> int:
        return len(values) + len(named)


class Async(Actor):
    @endpoint
    async def add(self, amount: int) -> int:
        return amount

    @endpoint(instrument=False)
    async def with_options(self, amount: int) -> dict[str, int]:
        return {"amount": amount}

    @endpoint(explicit_response_port=True)
    async def by_port(self, port: Port[bytes], count: int = 1) -> None:
        port.send(bytes(count))


procs = this_host().spawn_procs({"gpus": 2})
plain = procs.spawn("plain", Plain, 1, title="a")
other = procs.spawn("other", Async)

# The kinds of call.
assert_type(plain.add.call(1), Future[ValueMesh[int]])
assert_type(plain.add.call_one(1), Future[int])
assert_type(plain.add.choose(1, twice=True), Future[int])
assert_type(plain.add.stream(1), Iterator[Future[int]])
plain.add.broadcast(1)
assert_type(plain.add.call(1).get(), ValueMesh[int])
assert_type(plain.add.call_one(1).get(timeout=1.0), int)
assert_type(plain.nothing.call_one(), Future[None])
assert_type([future.get() for future in plain.add.stream(1)], list[int])
assert_type([value for _, value in plain.add.call(1).get()], list[int])
assert_type(plain.add.call(1).get().item(gpus=0), int)

# With a time limit.
assert_type(plain.add.call(1, timeout=2.0), Future[ValueMesh[int]])
assert_type(plain.add.call_one(1, timeout=2), Future[int])
assert_type(plain.add.choose(1, timeout=None), Future[int])
assert_type(plain.add.stream(1, timeout=2.0), Iterator[Future[int]])
assert_type(plain.add.with_timeout(2.0).call_one(1, twice=True), Future[int])
plain.add.call_one(1, timeout="soon")  # wrong
plain.add.with_timeout(2.0).call_one("a")  # wrong

# A decorator with arguments is as one without.
assert_type(plain.with_brackets.call_one("a"), Future[list[str]])
assert_type(plain.with_options.call_one(text="a"), Future[list[str]])

# The coroutine of an async endpoint is awaited for its caller.
assert_type(other.add.call(1), Future[ValueMesh[int]])
assert_type(other.with_options.call_one(1), Future[dict[str, int]])

# A port is not the caller's business; what is sent to it is.
assert_type(plain.by_port.call(2), Future[ValueMesh[str]])
assert_type(plain.by_port.call_one(count=2), Future[str])
assert_type(other.by_port.call_one(), Future[bytes])

# A slice has the endpoints of its mesh.
assert_type(plain.slice(gpus=0), Plain)
assert_type(plain.slice(gpus=0).add.call_one(1).get(), int)
assert_type(plain.flatten("rank").size(), int)
assert_type(len(plain), int)
assert_type(plain.stop(), Future[None])
assert_type(plain.initialized, Future[None])


async def awaits() -> None:
    assert_type(await plain.add.call(1), ValueMesh[int])
    assert_type(await other.by_port.call_one(), bytes)


# Wrong arguments are found for each kind of call.
plain.add.call("a")  # wrong
plain.add.call()  # wrong
plain.add.call(1, 2)  # wrong
plain.add.call_one(1, thrice=True)  # wrong
plain.add.call_one(1, twice="yes")  # wrong
plain.add.choose(amount=None)  # wrong
plain.add.stream("a")  # wrong
plain.add.broadcast("a")  # wrong
plain.with_options.call(1)  # wrong
plain.by_port.call("a")  # wrong
plain.by_port.call(Port, 1)  # wrong
plain.many.call(1, "a")  # wrong
assert_type(plain.many.call_one(1, 2), Future[int])
assert_type(plain.anything.call_one(1, 2, a="3"), Future[int])
other.add.call("a")  # wrong

# So are wrong uses of results, and endpoints that are not there.
text: str = plain.add.call_one(1).get()  # wrong
plain.add.broadcast(1).get()  # wrong
plain.subtract.call(1)  # wrong
plain.add(1)  # wrong

# And what the actor is made of.
procs.spawn("plain", Plain)  # wrong
procs.spawn("plain", Plain, "1")  # wrong
procs.spawn("plain", Plain, 1, titel="a")  # wrong
procs.spawn("plain", int)  # wrong
assert_type(procs.spawn("plain", Plain, 1, restart=Restart.one_for_one()), Plain)
procs.spawn("plain", int, restart=Restart.one_for_one())  # wrong
this_host().spawn_procs({"gpus": 2}, restart=Restart.rest_for_one(max_restarts=1))
this_host().spawn_procs({"gpus": 2}, restart=3)  # wrong
