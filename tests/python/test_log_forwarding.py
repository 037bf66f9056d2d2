"""Output of workers: where it goes, prefixed or merged, and that none of it is lost. Whole programs in processes of
their own, for it is their stdout and stderr that count."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

# Each program is the body of main(), between this and the call of it.
HEAD = """
import asyncio, logging, os, sys
import monarch
from monarch.actor import Actor, endpoint, this_host
from monarch.config import configure, configured

class Printer(Actor):
    @endpoint
    def say(self, text, err=False):
        print(text, file=sys.stderr if err else sys.stdout)

    @endpoint
    def say_ranked(self, text):
        from monarch.actor import current_rank
        print(text.format(current_rank().rank))

    @endpoint
    def write(self, data):
        os.write(1, data)

    @endpoint
    def many(self, count):
        for number in range(count):
            print(f"line {number}")

    @endpoint
    def log(self, text):
        for emit in (logging.debug, logging.info, logging.error):
            emit(text + " %s", emit.__name__)

    @endpoint
    def close(self):
        sys.stdout.close()

    @endpoint
    def die(self, data):
        os.write(1, data)
        os.write(2, b"last words")
        os.kill(os.getpid(), 9)

def spawn(count=1, **config):
    with configured(**{"enable_log_forwarding": True, **config}):
        procs = this_host().spawn_procs({"gpus": count})
    return procs, procs.spawn("printer", Printer)

def option(procs, **options):
    asyncio.run(procs.logging_option(**options))

"""

Run = Callable[..., Any]


@pytest.fixture
def run(run_python: Any, tmp_path: Any) -> Run:
    def run_body(body: str) -> Any:
        program = tmp_path / "program.py"
        lines = "\n".join("    " + line for line in body.strip().splitlines())
        program.write_text(f"{HEAD}\ndef main():\n{lines}\n\nif __name__ == '__main__':\n    main()\n")
        done = run_python(str(program))
        assert done.status == 0, done.err
        return done

    return run_body


PREFIX = r"\[\S+ proc\d+\] "


def test_by_default_output_is_the_clients_without_prefix(run: Run) -> None:
    done = run("""
procs, printer = spawn(enable_log_forwarding=False)
printer.say.call_one("to out").get()
printer.say.call_one("to err", err=True).get()
procs.stop().get()
""")
    assert (done.out, done.err) == ("to out\n", "to err\n")


def test_before_it_is_streamed_output_is_the_clients_without_prefix(run: Run) -> None:
    done = run("""
procs, printer = spawn()
printer.say.call_one("to out").get()
printer.say.call_one("to err", err=True).get()
procs.stop().get()
""")
    assert (done.out, done.err) == ("to out\n", "to err\n")


def test_each_line_has_host_proc_and_rank_stdout_to_stdout_and_stderr_to_stderr(run: Run) -> None:
    done = run("""
procs, printer = spawn(2)
option(procs, stream_to_client=True)
printer.say.call("to out").get()
printer.slice(gpus=1).say.call_one("to err", err=True).get()
procs.stop().get()
""")
    assert sorted(re.sub(PREFIX, "[*] ", done.out).splitlines()) == ["[*] [0] to out", "[*] [1] to out"]
    assert re.fullmatch(PREFIX + r"\[1\] to err\n", done.err)


def test_without_prefix_with_rank_lines_have_none(run: Run) -> None:
    done = run("""
configure(prefix_with_rank=False)
procs, printer = spawn()
option(procs, stream_to_client=True)
printer.say.call_one("plain").get()
procs.stop().get()
""")
    assert done.out == "plain\n"


def test_streaming_of_processes_spawned_without_forwarding_warns(run: Run) -> None:
    done = run("""
procs, printer = spawn(enable_log_forwarding=False)
option(procs, stream_to_client=True)
printer.say.call_one("plain").get()
procs.stop().get()
""")
    assert done.out == "plain\n"
    assert "logging_option(stream_to_client=True) has no effect" in done.err


def blocks(text: str) -> list[list[str]]:
    """The lines of each block; nothing else is there."""
    found = []
    while text:
        match = re.match(
            r">>> Aggregated Logs \((.*?)\) >>>\n(.*?)<<< Aggregated Logs \(\1\) <<<\n", text, re.S
        )
        assert match, text
        found.append(match[2].splitlines())
        text = text[match.end() :]
    return found


def test_similar_lines_of_a_window_are_merged_into_a_block_with_counts_that_add_up(run: Run) -> None:
    done = run("""
procs, printer = spawn(3)
option(procs, stream_to_client=True, aggregate_window_sec=600)
for _ in range(5):
    printer.say.call("the same").get()
printer.say_ranked.call("rank {} has something longer to say").get()
procs.stop().get()
""")
    ((same, ranked),) = blocks(done.out)
    assert same == "[15 similar log lines] the same"
    assert re.fullmatch(r"\[3 similar log lines\] rank \d has something longer to say", ranked)


def test_different_lines_of_one_rank_are_not_merged(run: Run) -> None:
    done = run("""
procs, printer = spawn()
option(procs, stream_to_client=True, aggregate_window_sec=600)
printer.many.call_one(30).get()
procs.stop().get()
""")
    assert blocks(done.out) == [[f"[1 similar log lines] line {number}" for number in range(30)]]


def test_a_window_ends_by_itself(run: Run) -> None:
    done = run("""
import threading
class Watched:
    def __init__(self, stream): self.stream, self.seen = stream, threading.Event()
    def write(self, text):
        self.stream.write(text)
        if "<<<" in text: self.seen.set()
    def flush(self): self.stream.flush()
sys.stdout = Watched(sys.stdout)
procs, printer = spawn()
option(procs, stream_to_client=True, aggregate_window_sec=0.2)
printer.say.call_one("in the window").get()
assert sys.stdout.seen.wait(20)
procs.stop().get()
""")
    assert blocks(done.out) == [["[1 similar log lines] in the window"]]


def test_a_change_of_the_options_holds_from_then_on_and_flushes(run: Run) -> None:
    done = run("""
procs, printer = spawn()
printer.say.call_one("one").get()
option(procs, stream_to_client=True, aggregate_window_sec=600)
printer.say.call_one("two").get()
option(procs, stream_to_client=True)
printer.say.call_one("three").get()
option(procs, stream_to_client=False)
printer.say.call_one("four").get()
procs.stop().get()
""")
    first, *block, third, fourth = done.out.splitlines(keepends=True)
    assert (first, fourth) == ("one\n", "four\n")
    assert blocks("".join(block)) == [["[1 similar log lines] two"]]
    assert re.fullmatch(PREFIX + r"\[0\] three\n", third)


def test_level_sets_the_root_loggers_level(run: Run) -> None:
    done = run("""
procs, printer = spawn()
option(procs, stream_to_client=True, level=logging.ERROR)
printer.log.call_one("first").get()
option(procs, stream_to_client=True, level=logging.DEBUG)
printer.log.call_one("second").get()
procs.stop().get()
""")
    assert re.findall(r"(first|second) (\w+)$", done.err, re.M) == [
        ("first", "error"),
        ("second", "debug"),
        ("second", "info"),
        ("second", "error"),
    ]


def test_processes_may_have_closed_their_stdout(run: Run) -> None:
    done = run("""
procs, printer = spawn()
printer.close.call_one().get()
option(procs, stream_to_client=True)
from monarch.actor import context
assert [mesh.name for mesh in context().actor_instance.owned if not mesh.is_procs] == ["printer"]
printer.say.call_one("to stderr", err=True).get()
procs.stop().get()
""")
    assert re.fullmatch(PREFIX + r"\[0\] to stderr\n", done.err)


def test_pending_lines_are_printed_at_the_end_of_the_program(run: Run) -> None:
    done = run("""
procs, printer = spawn(2)
option(procs, stream_to_client=True, aggregate_window_sec=600)
for _ in range(10):
    printer.say.call("pending").get()
""")
    assert blocks(done.out) == [["[20 similar log lines] pending"]]


def test_pending_lines_are_printed_after_each_cell_of_ipython(run: Run, tmp_path: Any) -> None:
    done = run(f"""
os.environ["IPYTHONDIR"] = {str(tmp_path)!r}
from IPython.core.interactiveshell import InteractiveShell
procs, printer = spawn(2)
other, other_printer = spawn(1)
shell = InteractiveShell.instance(user_ns=dict(printer=printer, other_printer=other_printer))
shell.history_manager.enabled = False
for mesh in (procs, other):
    option(mesh, stream_to_client=True, aggregate_window_sec=600)
for cell in ("first", "second"):
    result = shell.run_cell(f"_ = printer.say.call('{{cell}}').get(), other_printer.say.call('{{cell}} of other').get()")
    result.raise_error()
    print("end of", cell, flush=True)
procs.stop().get()
other.stop().get()
""")
    parts = re.split(r"end of \w+\n", done.out)
    assert parts.pop() == ""
    for cell, part in zip(("first", "second"), parts, strict=True):
        assert sorted(sum(blocks(part), [])) == [
            f"[1 similar log lines] {cell} of other",
            f"[2 similar log lines] {cell}",
        ]


@pytest.mark.parametrize("window", [None, 600])
def test_text_without_a_line_end_before_a_crash_arrives(run: Run, window: float | None) -> None:
    done = run(f"""
import monarch.actor, threading
failed = threading.Event()
monarch.actor.unhandled_fault_hook = lambda failure: failed.set()
procs, printer = spawn()
option(procs, stream_to_client=True, aggregate_window_sec={window})
printer.die.broadcast(b"whole\\nunfinished")
assert failed.wait(20)
procs.stop().get()
""")
    if window is None:
        assert re.fullmatch(rf"{PREFIX}\[0\] whole\n{PREFIX}\[0\] unfinished\n", done.out)
        assert re.fullmatch(rf"{PREFIX}\[0\] last words\n", done.err)
    else:
        assert blocks(done.out) == [["[1 similar log lines] whole", "[1 similar log lines] unfinished"]]
        assert blocks(done.err) == [["[1 similar log lines] last words"]]


def test_an_unfinished_line_is_not_ended_where_it_is_not_streamed(run: Run) -> None:
    done = run("""
procs, printer = spawn()
printer.write.call_one(b"\\xe2\\x98\\x83 and unfinished").get()
option(procs)
printer.write.call_one(b", but now finished\\n").get()
procs.stop().get()
""")
    assert done.out == "\N{SNOWMAN} and unfinished, but now finished\n"


def test_every_one_of_many_lines_arrives_once_and_in_order(run: Run) -> None:
    done = run("""
procs, printer = spawn(2)
option(procs, stream_to_client=True)
printer.many.call(50_000).get()
procs.stop().get()
""")
    assert done.err == ""
    for rank in (0, 1):
        found = re.findall(rf"^{PREFIX}\[{rank}\] line (\d+)$", done.out, re.M)
        assert found == [str(number) for number in range(50_000)]


def test_a_reader_that_is_stuck_does_not_hold_up_the_worker_and_what_is_dropped_is_counted(run: Run) -> None:
    done = run("""
import threading
class Stuck:
    def __init__(self, stream): self.stream, self.go_on, self.wrote = stream, threading.Event(), 0
    def write(self, text):
        self.go_on.wait()
        self.wrote += len(text)
    def flush(self): pass
out, sys.stdout = sys.stdout, Stuck(sys.stdout)
procs, printer = spawn()
option(procs)
size = 1 << 20
for _ in range(24):
    printer.write.call_one((b"x" * 1023 + b"\\n") * (size // 1024)).get()
sys.stdout.go_on.set()
procs.stop().get()
print(sys.stdout.wrote, file=out)
""")
    dropped = sum(int(n) for n in re.findall(r"^monarch: (\d+) bytes of output dropped", done.err, re.M))
    lost = 24 * 1024 - int(done.out) // 1024
    assert 0 < lost < 24 * 1024
    # Whole lines, counted with the marker before each: tag, proc and kind.
    assert dropped % lost == 0
    assert 1024 + len("1 1 o ") <= dropped // lost <= 1024 + len("99 99 o ")


# --- arguments ---


@pytest.mark.parametrize("level", [-1, 256])
def test_a_level_outside_0_to_255_is_a_value_error(spawn_procs: Callable[..., Any], level: int) -> None:
    with pytest.raises(ValueError, match="0 to 255"):
        asyncio.run(spawn_procs().logging_option(level=level))


def test_a_window_without_streaming_is_a_value_error(spawn_procs: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="stream_to_client=True"):
        asyncio.run(spawn_procs().logging_option(aggregate_window_sec=3, level=logging.INFO))
