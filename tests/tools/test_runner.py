"""The runner behind ./tools/test: what it counts, and what it says when something goes wrong."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/support"))

from testing import __main__ as runner  # noqa: E402
from testing import bazel, command, python  # noqa: E402
from testing.disabled import Disabled  # noqa: E402
from testing.kinds import KINDS, Kind, Options  # noqa: E402
from testing.tally import Tally  # noqa: E402

VENV = pathlib.Path(sys.prefix)
NONE = Disabled([])


def write(path: pathlib.Path, text: str) -> pathlib.Path:
    path.write_text(text, encoding="utf-8")
    return path


def run_file(tmp_path: pathlib.Path, text: str, disabled: Disabled = NONE) -> Tally:
    write(tmp_path / "pyproject.toml", "[tool.pytest.ini_options]\n")
    file = write(tmp_path / "test_x.py", text)
    return python.run_tests(VENV, tmp_path, [file], disabled)


def test_counts_each_python_test(tmp_path):
    tally = run_file(tmp_path, "def test_a(): pass\ndef test_b(): assert False\ndef test_c(): pass\n")
    assert tally.closing_line() == "2 passed, 1 failed"
    assert tally.failures == ["test_x.py::test_b"]


def test_tests_start_without_ignored_signals(tmp_path):
    text = """
import signal
import subprocess
import sys

def test_a():
    names = "SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"
    code = f"import signal; print([n for n in {names} if signal.getsignal(getattr(signal, n)) is signal.SIG_IGN])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\\n"
"""
    file = write(tmp_path / "test_x.py", text)
    ignoring = ["/bin/sh", "-c", 'trap \'\' HUP INT QUIT TERM; exec "$0" "$@"']
    ran = subprocess.run([*ignoring, ROOT / "tools/test", "--pytest", file], check=False, capture_output=True)
    assert ran.stdout.endswith(b"\n1 passed, 0 failed\n"), ran.stdout


def test_leaves_out_disabled_tests(tmp_path):
    text = "def test_a(): pass\ndef test_b(): assert False\n"
    assert run_file(tmp_path, text, Disabled(["test_x.py::test_b"])).closing_line() == "1 passed, 0 failed"
    assert run_file(tmp_path, text, Disabled(["test_x.py"])).closing_line() == "0 passed, 0 failed"


def test_a_file_that_crashes_is_a_failure(tmp_path):
    tally = run_file(tmp_path, "import os\ndef test_a(): os.kill(os.getpid(), 9)\n")
    assert tally.closing_line() == "0 passed, 1 failed"


def test_a_file_that_does_not_import_is_a_failure(tmp_path):
    assert run_file(tmp_path, "import no_such_module\n").failed == 1


def test_a_file_without_tests_is_no_failure(tmp_path):
    assert run_file(tmp_path, "").closing_line() == "0 passed, 0 failed"


def test_a_kind_that_ran_no_test_is_a_failure(monkeypatch):
    monkeypatch.setattr(runner, "prepare", lambda kinds: Tally())
    total = runner.run_kinds([Kind("empty", "runs nothing", lambda options: Tally())], Options(NONE, False))
    assert total.failures == ["empty: no test ran"]


@pytest.mark.parametrize("kind", ["unit", "sim", "sanitize", "fuzz", "tsan", "asan", "ubsan"])
def test_no_tag_filter_is_empty(monkeypatch, kind):
    # Bazel takes an empty tag for one that every test lacks.
    lines = []
    monkeypatch.setattr(bazel, "_bazel", lambda command, flags, targets: lines.append(flags) or 0)
    KINDS[kind].run(Options(NONE, False))
    (filters,) = [flag.partition("=")[2] for flag in lines[0] if flag.startswith("--test_tag_filters=")]
    assert all(filters.split(","))


def test_a_command_is_ended_when_its_time_is_up(tmp_path):
    assert command.run([sys.executable, "-c", "import signal; signal.pause()"], 0.5, tmp_path) == 124
    assert command.run([sys.executable, "-c", "raise SystemExit(3)"], 60, tmp_path) == 3


def events_file(tmp_path: pathlib.Path, label: str, status: str, log: str) -> pathlib.Path:
    output = {"name": "test.log", "uri": write(tmp_path / "test.log", log).as_uri()}
    events = [
        {"id": {"testResult": {"label": label}}, "testResult": {"testActionOutput": [output]}},
        {"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": status}},
    ]
    return write(tmp_path / "events.json", "\n".join(map(json.dumps, events)))


def count(events: pathlib.Path) -> Tally:
    tally = Tally()
    bazel._count(events, tally)
    return tally


def test_counts_the_cases_of_a_cpp_test(tmp_path):
    log = "===\nAll tests passed (40 assertions in 12 test cases)\n"
    assert count(events_file(tmp_path, "//a:b", "PASSED", log)).closing_line() == "12 passed, 0 failed"


def test_names_the_cases_that_failed(tmp_path):
    log = (
        "exec me\n"
        + "-" * 77
        + "\n"
        + "-" * 79
        + "\nIds.RoundTrip\n"
        + "-" * 79
        + "\na.cc:3\n"
        + "." * 79
        + "\n\na.cc:4: FAILED:\n  CHECK( false )\n\n"
        "===\ntest cases: 3 | 2 passed | 1 failed\nassertions: 5 | 4 passed | 1 failed\n"
    )
    tally = count(events_file(tmp_path, "//a:b", "FAILED", log))
    assert tally.closing_line() == "2 passed, 1 failed"
    assert tally.failures == ["//a:b::Ids.RoundTrip"]


def test_a_cpp_test_that_is_no_catch2_program_counts_as_one(tmp_path):
    assert count(events_file(tmp_path, "//a:b", "PASSED", "fine\n")).closing_line() == "1 passed, 0 failed"
    assert count(events_file(tmp_path, "//a:b", "TIMEOUT", "")).closing_line() == "0 passed, 1 failed"


def test_a_target_that_does_not_build_is_a_failure(tmp_path):
    event = {"id": {"targetCompleted": {"label": "//a:b"}}, "completed": {}}
    assert count(write(tmp_path / "e.json", json.dumps(event))).failures == ["//a:b (build)"]


def test_reads_the_list_of_disabled_tests(tmp_path):
    path = write(
        tmp_path / "d.txt",
        "# comment\n\n//a:b  slow, #1\n//a:c::Case With Spaces  flaky, #2\ntests/x.py::test_y   #3\n",
    )
    disabled = Disabled.read(path)
    assert disabled.targets() == ["//a:b"]
    assert disabled.cases() == ["//a:c::Case With Spaces"]
    assert disabled.in_file("tests/x.py") == ["tests/x.py::test_y"]
    with pytest.raises(SystemExit):
        Disabled.read(write(tmp_path / "e.txt", "//a:b\n"))


def test_the_tree_has_a_readable_list():
    Disabled.read(ROOT / "tests/disabled_tests.txt")
