"""Arguments, results, classes and exceptions on their way: what travels how, and what is said of what cannot."""

from __future__ import annotations

import os
import pickle
import threading
from typing import Any

import pytest
from monarch.actor import Actor, ActorError, Channel, Port, SupervisionError, endpoint, this_proc


class NeedsKeyword(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class BrokenReduce(Exception):
    def __reduce__(self) -> Any:
        raise OSError("no reduce")


class BrokenText(Exception):
    def __str__(self) -> str:
        raise OSError("no text")


class BrokenLoad:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        return (_raise, (self.error,))


def _raise(error: BaseException) -> None:
    raise error


class Holder:
    def __init__(self, value: Any) -> None:
        self.value = value


class Counted:
    """Knows how often it was loaded in this process."""

    loaded = 0

    def __init__(self) -> None:
        self.state = "some"

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        Counted.loaded += 1


class Worker(Actor):
    def __init__(self, argument: Any = None) -> None:
        self.argument = argument

    @endpoint
    def echo(self, value: Any) -> Any:
        return value

    @endpoint
    def apply(self, function: Any, *args: Any) -> Any:
        return function(*args)

    @endpoint
    def throw(self, kind: str) -> None:
        if kind == "keyword":
            raise NeedsKeyword(code=7)
        if kind == "text":
            raise BrokenText
        raise BrokenReduce("text")

    @endpoint
    def make(self, what: str) -> Any:
        broken = BrokenLoad(ValueError("bad state"))
        return {"lock": threading.Lock(), "load": broken, "load beside a mesh": [this_proc(), broken]}[what]

    @endpoint
    def send_to(self, port: Port[str], value: str) -> None:
        port.send(value)

    @endpoint
    def pid(self) -> int:
        return os.getpid()


@pytest.fixture
def worker(spawn_procs: Any) -> Any:
    return spawn_procs({"gpus": 1}).spawn("worker", Worker)


def assert_alive(worker: Any) -> None:
    assert worker.echo.call_one("alive").get() == "alive"


# --- by reference and by value ---


def test_importable_classes_travel_by_reference(worker: Any) -> None:
    assert worker.apply.call_one(lambda: Holder).get() is Holder


def test_local_classes_and_lambdas_travel_by_value(worker: Any) -> None:
    class Local:
        factor = 3

        def times(self, value: int) -> int:
            return value * self.factor

    assert worker.apply.call_one(lambda thing, value: thing().times(value), Local, 5).get() == 15
    assert worker.echo.call_one(Local()).get().times(2) == 6


def test_what_main_defines_travels_by_value(run_python: Any, tmp_path: Any) -> None:
    (tmp_path / "program.py").write_text("""
from monarch.actor import Actor, endpoint, this_host
class Item:
    size = 4
class Maker(Actor):
    @endpoint
    def make(self, kind):
        made = kind()
        made.size += 1
        return made
maker = this_host().spawn_procs({"gpus": 1}).spawn("maker", Maker)
made = maker.make.call_one(Item).get()
print(type(made) is Item, made.size)
""")
    done = run_python("program.py")
    assert (done.status, done.out, done.err) == (0, "True 5\n", "")


def test_registered_modules_travel_by_value(run_python: Any, tmp_path: Any) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here/only_here.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "program.py").write_text("""
import sys
from monarch.actor import Actor, ActorError, endpoint, this_host
class Worker(Actor):
    @endpoint
    def apply(self, function, value):
        return function(value)
worker = this_host().spawn_procs({"gpus": 1}).spawn("worker", Worker)
worker.apply.call_one(abs, -1).get()  # it is up, so what is on the path from here on is not on its path
sys.path.insert(0, "here")
import cloudpickle, only_here
try:
    worker.apply.call_one(only_here.double, 4).get()
except ActorError as error:
    print(type(error.exception).__name__, error.exception.name, error.exception)
cloudpickle.register_pickle_by_value(only_here)
print(worker.apply.call_one(only_here.double, 4).get())
""")
    done = run_python("program.py")
    assert (done.status, done.err) == (0, "")
    first, second = done.out.splitlines()
    assert first.startswith(
        "ModuleNotFoundError only_here an argument of apply() cannot be loaded in this process"
    )
    assert "register_pickle_by_value" in first
    assert second == "8"


def test_tracebacks_of_workers_show_the_source_of_what_travelled_by_value(
    run_python: Any, tmp_path: Any
) -> None:
    # The file exists for the sender alone, which has read it before it goes.
    (tmp_path / "gone.py").write_text("def fail(x):\n    y = x + 1\n    return y / 0  # the culprit\n")
    (tmp_path / "program.py").write_text("""
import importlib, linecache, os, sys
sys.path.insert(0, os.getcwd())
from monarch.actor import Actor, ActorError, endpoint, this_host
class Worker(Actor):
    @endpoint
    def apply(self, function, value):
        return function(value)
worker = this_host().spawn_procs({"gpus": 1}).spawn("worker", Worker)
import cloudpickle, gone
cloudpickle.register_pickle_by_value(gone)
linecache.getlines(gone.__file__)
os.unlink(gone.__file__)
try:
    worker.apply.call_one(gone.fail, 1).get()
except ActorError as error:
    print("return y / 0  # the culprit" in error.exception_formatted, "line 3, in fail" in error.exception_formatted)
""")
    done = run_python("program.py")
    assert (done.status, done.out, done.err) == (0, "True True\n", "")


def test_code_of_another_python_is_refused(worker: Any) -> None:
    from monarch._actor import cloud_pickler

    def make() -> int:
        return 1

    before = cloud_pickler._VERSION
    cloud_pickler._VERSION = (3, 99)
    try:
        future = worker.apply.call_one(make)
    finally:
        cloud_pickler._VERSION = before
    with pytest.raises(ActorError, match="function 'make' was sent by value by Python 3.99") as caught:
        future.get()
    assert isinstance(caught.value.exception, TypeError)
    assert_alive(worker)


def test_torch_storages_arrive_on_the_cpu(run_python: Any, tmp_path: Any) -> None:
    # What torch offers, as far as it is used.
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text("""
from torch import storage
def save(obj, out, _use_new_zipfile_serialization):
    out.write(obj.data)
def load(file, map_location, weights_only):
    return storage.FloatStorage(file.read(), map_location)
""")
    (tmp_path / "torch/storage.py").write_text("""
class UntypedStorage:
    def __init__(self, data, device):
        self.data, self.device = data, device
    def __reduce__(self):
        raise RuntimeError("pickled as it is")
class TypedStorage(UntypedStorage):
    pass
class FloatStorage(TypedStorage):
    pass
""")
    (tmp_path / "program.py").write_text("""
import sys
sys.path.insert(0, ".")
from monarch._actor import pickling
assert "torch" not in sys.modules
import torch
weights = torch.storage.FloatStorage(b"1234" * 1000, "cuda:0")
for message in (weights, lambda: weights):
    parts = pickling.dumps([message])
    [found] = pickling.loads(parts)
    found = found if found.__class__ is torch.storage.FloatStorage else found()
    print(len(parts), len(parts[0]) < 2000, found.data == weights.data, found.device)
""")
    done = run_python("program.py")
    assert (done.status, done.out, done.err) == (0, "2 True True cpu\n" * 2, "")


def test_ports_and_meshes_inside_payloads(worker: Any) -> None:
    port, receiver = Channel[str].open()
    worker.send_to.call_one(port, "by port").get()
    assert receiver.recv().get(timeout=20) == "by port"
    back = worker.echo.call_one({"nested": [Holder(port), worker]}).get()["nested"]
    back[0].value.send("by its copy")
    assert receiver.recv().get(timeout=20) == "by its copy"
    assert back[1].pid.call_one().get() == worker.pid.call_one().get()


def test_a_mesh_that_is_still_being_spawned_may_be_an_argument(worker: Any, spawn_procs: Any) -> None:
    other = spawn_procs({"gpus": 1}).spawn("other", Worker)
    assert (
        worker.apply.call_one(lambda mesh: mesh.pid.call_one().get(), other).get()
        == other.pid.call_one().get()
    )


# --- what cannot be pickled ---


@pytest.mark.parametrize("by_value", [False, True])
def test_results_that_carry_references_are_loaded_when_they_arrive_and_others_when_looked_at(
    spawn_procs: Any, by_value: bool
) -> None:
    workers = spawn_procs({"gpus": 2}).spawn("workers", Worker)
    more = (lambda: None) if by_value else None  # cloudpickle's business
    before = Counted.loaded
    plain = workers.echo.call((Counted(), more)).get()
    assert Counted.loaded == before
    assert len(plain.values()) == 2
    assert Counted.loaded == before + 2
    with_mesh = workers.echo.call((Counted(), more, [workers])).get()
    assert Counted.loaded == before + 4
    for _, (_, _, [mesh]) in with_mesh:
        assert len(mesh.pid.call().get()) == 2
    assert Counted.loaded == before + 4


def test_a_result_with_references_that_cannot_be_loaded_raises_where_it_is_looked_at(worker: Any) -> None:
    answers = worker.make.call("load beside a mesh").get()
    with pytest.raises(ValueError, match="bad state"):
        answers.values()


def test_an_argument_that_cannot_be_pickled_raises_at_the_call(worker: Any) -> None:
    with pytest.raises(TypeError, match=r"argument 0\['a'\]\[1\].value cannot be pickled \(it is a lock\)"):
        worker.echo.call_one({"a": [1, Holder(threading.Lock())]})
    with pytest.raises(
        TypeError, match="argument 'value' cannot be pickled: TypeError: cannot pickle '_thread.lock'"
    ):
        worker.echo.call_one(value=threading.Lock())
    lock = threading.Lock()
    with pytest.raises(TypeError, match="argument 0's variable 'lock' cannot be pickled"):
        worker.apply.call_one(lambda: lock)
    assert_alive(worker)


def test_an_argument_whose_reduce_raises_raises_the_same(worker: Any) -> None:
    with pytest.raises(OSError, match="no reduce"):
        worker.echo.call_one([BrokenReduce()])


def test_an_argument_of_init_that_cannot_be_pickled_raises_at_spawn(spawn_procs: Any) -> None:
    procs = spawn_procs({"gpus": 1})
    with pytest.raises(TypeError, match=r"argument 'argument'.value of Worker.__init__ cannot be pickled"):
        procs.spawn("worker", Worker, argument=Holder(threading.Lock()))


def test_a_class_that_cannot_be_pickled_raises_at_spawn(spawn_procs: Any) -> None:
    lock = threading.Lock()

    class Locked(Actor):
        @endpoint
        def use(self) -> bool:
            return lock.locked()

    with pytest.raises(TypeError, match="class .*Locked cannot be pickled"):
        spawn_procs({"gpus": 1}).spawn("locked", Locked)


def test_a_result_that_cannot_be_pickled_is_an_actor_error(worker: Any) -> None:
    with pytest.raises(
        ActorError, match="the value cannot be pickled: TypeError: cannot pickle '_thread.lock'"
    ) as caught:
        worker.make.call_one("lock").get()
    assert isinstance(caught.value.exception, TypeError)
    assert_alive(worker)


# --- what cannot be loaded ---


def test_an_argument_that_cannot_be_loaded_is_an_actor_error(worker: Any) -> None:
    with pytest.raises(ActorError, match="bad argument") as caught:
        worker.echo.call_one(BrokenLoad(ValueError("bad argument"))).get()
    assert isinstance(caught.value.exception, ValueError)
    assert_alive(worker)


def test_an_argument_that_cannot_be_loaded_and_no_caller_fails_the_actor(worker: Any, failures: Any) -> None:
    worker.echo.broadcast(BrokenLoad(ValueError("bad argument")))
    assert "bad argument" in failures.wait()[0].report()


def test_a_result_that_cannot_be_loaded_raises_at_the_caller(worker: Any) -> None:
    with pytest.raises(ValueError, match="bad state"):
        worker.make.call_one("load").get()
    with pytest.raises(ValueError, match="bad state"):
        worker.make.call("load").get().values()
    assert_alive(worker)


# --- exceptions ---


def test_an_exception_with_required_keywords_arrives_as_text(worker: Any) -> None:
    with pytest.raises(ActorError, match="NeedsKeyword: code 7") as caught:
        worker.throw.call_one("keyword").get()
    assert caught.value.exception is None
    assert "the exception itself cannot be loaded here: TypeError" in str(caught.value)
    assert_alive(worker)


def test_an_exception_whose_text_raises_arrives(worker: Any) -> None:
    with pytest.raises(ActorError, match="BrokenText") as caught:
        worker.throw.call_one("text").get()
    assert isinstance(caught.value.exception, BrokenText)
    assert_alive(worker)


def test_an_exception_that_cannot_be_pickled_fails_the_actor(worker: Any, failures: Any) -> None:
    with pytest.raises(
        SupervisionError,
        match=r"(?s)BrokenReduce: text.*\(the exception cannot be pickled: OSError: no reduce\)",
    ):
        worker.throw.call_one("reduce").get()
    assert len(failures.wait()) == 1


# --- the standard pickle ---


def test_meshes_and_ports_travel_by_the_standard_pickle(worker: Any) -> None:
    port, receiver = Channel[str].open()
    copy, port_copy = pickle.loads(pickle.dumps((worker, port)))
    copy.send_to.call_one(port_copy, "hello").get()
    assert receiver.recv().get(timeout=20) == "hello"


def test_futures_and_receivers_do_not_travel(worker: Any) -> None:
    with pytest.raises(TypeError, match="argument 0 cannot be pickled"):
        worker.echo.call_one(worker.pid.call_one())
    with pytest.raises(TypeError, match="argument 0 cannot be pickled"):
        worker.echo.call_one(Channel[str].open()[1])
