"""The prefix of log messages: who logs."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from typing import Any

import monarch.actor
import pytest
from monarch.actor import Actor, context, endpoint

SpawnProcs = Callable[..., Any]


class Capture:
    """A logger with handlers of its own."""

    def __init__(self, handlers: int = 1) -> None:
        self.streams = [io.StringIO() for _ in range(handlers)]
        self.logger = logging.getLogger("monarch.test.capture")
        self.logger.propagate = False
        self.logger.setLevel(logging.INFO)
        self.records: list[logging.LogRecord] = []
        self.handlers = [logging.StreamHandler(stream) for stream in self.streams]
        for handler in self.handlers:
            handler.setFormatter(logging.Formatter("%(message)s"))
            self.logger.addHandler(handler)
        # Behind the filter of the package.
        self.handlers[0].addFilter(lambda record: self.records.append(record) or True)

    def close(self) -> list[str]:
        for handler in self.handlers:
            self.logger.removeHandler(handler)
        return [stream.getvalue() for stream in self.streams]


@pytest.fixture
def started() -> Iterator[None]:
    context()
    yield
    monarch.actor.config.prefix_python_logs_with_actor = True


class Logging(Actor):
    @endpoint
    def log(self, *args: Any) -> tuple[str, Any]:
        capture = Capture()
        capture.logger.info(*args)
        return capture.close()[0], getattr(capture.records[0], "actor_prefix", None)


class AsyncLogging(Actor):
    @endpoint
    async def log(self, *args: Any) -> tuple[str, Any]:
        capture = Capture()
        capture.logger.info(*args)
        return capture.close()[0], getattr(capture.records[0], "actor_prefix", None)


@pytest.mark.parametrize("cls", [Logging, AsyncLogging])
def test_the_prefix_names_the_actor_and_is_on_the_record(spawn_procs: SpawnProcs, cls: Any) -> None:
    actor = spawn_procs({"gpus": 2}).spawn("named", cls).slice(gpus=1)
    text, prefix = actor.log.call_one("%s and %d", "a", 2).get()
    assert prefix == f"[actor=<root>.<test_log_prefix.{cls.__name__} named{{'gpus': 1/2}}>] "
    assert text == f"{prefix}a and 2\n"


def test_an_empty_message_stays_empty(spawn_procs: SpawnProcs) -> None:
    text, prefix = spawn_procs().spawn("named", Logging).log.call_one("").get()
    assert text == "\n"
    assert prefix.startswith("[actor=")


def test_the_client_has_a_prefix_as_well(started: None) -> None:
    capture = Capture(handlers=3)
    capture.logger.info("hello %s", "you")
    assert capture.close() == ["[actor=<root>] hello you\n"] * 3


def test_a_message_that_is_no_text_keeps_its_words(started: None) -> None:
    capture = Capture()
    capture.logger.info(ValueError("100% wrong"))
    assert capture.close() == ["[actor=<root>] 100% wrong\n"]


def test_the_prefix_can_be_switched_off(started: None) -> None:
    monarch.actor.config.prefix_python_logs_with_actor = False
    capture = Capture()
    capture.logger.info("hello")
    assert capture.close() == ["hello\n"]
    assert not hasattr(capture.records[0], "actor_prefix")


def test_handlers_that_were_there_before_the_import_have_it(run_python: Any) -> None:
    program = (
        "import logging, sys\nlogging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        "from monarch.actor import context\nlogging.warning('before')\ncontext()\nlogging.warning('after')"
    )
    done = run_python("-c", program)
    assert (done.status, done.out) == (0, "before\n[actor=<root>] after\n"), done.err


def test_logging_is_not_imported_for_it_and_prefixed_when_it_comes(run_python: Any) -> None:
    program = (
        "import sys, monarch.actor\nassert 'logging' not in sys.modules\nimport logging\n"
        "assert logging.__spec__.loader is logging.__loader__\nlogging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        "monarch.actor.context()\nlogging.warning('hello')"
    )
    done = run_python("-c", program)
    assert (done.status, done.out) == (0, "[actor=<root>] hello\n"), done.err


_ANOTHER_THREAD_IMPORTS_LOGGING = """
import sys, threading
from importlib.machinery import PathFinder

begun, go_on = threading.Event(), threading.Event()

class Hold:
    def find_spec(self, name, path=None, target=None):
        if name != "logging":
            return None
        spec = PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        def held(module):
            begun.set()
            go_on.wait()
            execute(module)
        spec.loader.exec_module = held
        return spec

sys.meta_path.insert(0, Hold())
slow = threading.Thread(target=lambda: __import__("logging"))
slow.start()
begun.wait()

def run():
    import monarch.actor
    import logging
    done.append(any(type(f).__module__ == "monarch._actor.log_prefix" for f in logging._handlerList[0]().filters))

done = []
user = threading.Thread(target=run)
user.start()
user.join(0.3)  # It waits for the other one, or has failed.
go_on.set()
slow.join()
user.join()
sys.exit(done != [True])
"""


def test_logging_may_be_imported_by_another_thread_at_the_same_time(run_python: Callable[..., Any]) -> None:
    ended = run_python("-c", _ANOTHER_THREAD_IMPORTS_LOGGING)
    assert ended.status == 0, ended.err


_IMPORT_WITHIN_AN_IMPORT = """
import sys
import monarch.actor

assert "logging" not in sys.modules

class Imports:
    def find_spec(self, name, path=None, target=None):
        if name == "wave":
            import logging
        return None

sys.meta_path.insert(-1, Imports())
import wave
"""


def test_to_import_logging_hides_no_module_from_imports_under_way(run_python: Callable[..., Any]) -> None:
    ended = run_python("-c", _IMPORT_WITHIN_AN_IMPORT)
    assert ended.status == 0, ended.err
