"""The kinds of test: what each runs, and which a plain ./tools/test runs."""

import dataclasses
import pathlib
from collections.abc import Callable

from testing import bazel, command, python, vm
from testing.disabled import Disabled
from testing.tally import Tally

ROOT = pathlib.Path(__file__).resolve().parents[3]
VENV = ROOT / ".venv"
EVERYTHING = ["//..."]


@dataclasses.dataclass(frozen=True)
class Options:
    disabled: Disabled
    full: bool


@dataclasses.dataclass(frozen=True)
class Kind:
    name: str
    help: str
    run: Callable[[Options], Tally]
    in_ci: bool = True  # part of a plain run; the others only by name and with --full
    needs_package: bool = False


def _one(name: str, line: list[str], timeout_s: float) -> Tally:
    """A command that is one test."""
    tally = Tally()
    status = command.run(line, timeout_s, ROOT)
    if status == 0:
        tally.passed = 1
    else:
        tally.fail(f"{name} (ended with {status})")
    return tally


def _lint(_: Options) -> Tally:
    return _one("lint", [str(ROOT / "tools/lint")], 600)


def _cpp(*flags: str, without: tuple[str, ...] = ("fuzz", "sim")) -> Callable[[Options], Tally]:
    tags = ["-" + tag for tag in without]
    return lambda options: bazel.test(list(flags), EVERYTHING, options.disabled, tags)


def _fuzz(options: Options) -> Tally:
    # One build with the kind "sanitize"; --full looks for longer.
    flags = ["--config=sanitize"] + (
        ["--test_env=MONARCH_FUZZ_RUNS=2000000", "--test_timeout=1800"] if options.full else []
    )
    return bazel.test(flags, EVERYTHING, options.disabled, ["fuzz"])


def _sim(options: Options) -> Tally:
    # Without a value: as the environment has it.
    flags = [f"--test_env=MONARCH_SIM_{name}" for name in ("SEEDS", "FIRST", "SEED")]
    if options.full:
        flags += ["--test_env=MONARCH_SIM_SEEDS=20000", "--test_timeout=1800"]
    return bazel.test(["--config=opt", *flags], ["//tests/sim/..."], options.disabled, ["sim"])


def _tsan(options: Options) -> Tally:
    # What is started and stopped with calls in flight has races, if anything has.
    rounds = 10_000 if options.full else 500
    flags = ["--config=tsan", f"--test_env=MONARCH_ROUNDS={rounds}"]
    flags += ["--test_timeout=300,900,7200,7200"] if options.full else []
    return bazel.test(flags, EVERYTHING, options.disabled, ["-fuzz", "-sim", "-no_tsan"])


def _clang(_: Options) -> Tally:
    return bazel.build(["--config=clang"], EVERYTHING)


def _build(_: Options) -> Tally:
    return bazel.build(["--config=opt"], EVERYTHING)


def _pytest(folder: str) -> Callable[[Options], Tally]:
    return lambda options: python.run_tests(VENV, ROOT, python.test_files(ROOT / folder), options.disabled)


def _examples(options: Options) -> Tally:
    return python.run_examples(VENV, ROOT, options.disabled)


def _bench(_: Options) -> Tally:
    return _one("bench --smoke", [str(ROOT / "tools/bench"), "--smoke"], 1200)


def _vm(options: Options) -> Tally:
    return vm.run(VENV, ROOT, options.full, options.disabled)


def _wheel(_: Options) -> Tally:
    return _one("wheel", [str(ROOT / "tools/support/wheel_test.sh")], 1800)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("lint", "tools/lint: style rules, formatting, ruff, mypy", _lint),
        Kind("tools", "tests/tools: the scripts themselves", _pytest("tests/tools")),
        Kind("build", "everything compiles in the release build, without a warning", _build),
        Kind("unit", "C++ tests in the release build", _cpp("--config=opt")),
        Kind("sim", "tests/sim: 1,000 seeds of the simulated cluster; --full: 20,000", _sim),
        Kind(
            "python",
            "tests/python against the installed package",
            _pytest("tests/python"),
            needs_package=True,
        ),
        Kind("integration", "tests/integration", _pytest("tests/integration"), needs_package=True),
        Kind("fault", "tests/fault", _pytest("tests/fault"), needs_package=True),
        Kind("examples", "each program in examples/ ends with 0", _examples, needs_package=True),
        Kind(
            "sanitize",
            "C++ tests by clang with address and undefined-behaviour sanitizers, layering and lock checks",
            _cpp("--config=sanitize", "--test_env=MONARCH_SIM_SEEDS=50", without=("fuzz",)),
        ),
        Kind("fuzz", "fuzz targets: corpus and seeded mutations, sanitized; --full: many more", _fuzz),
        Kind("tsan", "C++ tests with the thread sanitizer; --full: more rounds of starts and stops", _tsan),
        Kind("clang", "everything compiles with clang, layering and lock checks on", _clang, in_ci=False),
        Kind("asan", "C++ tests, gcc, address sanitizer", _cpp("--config=asan", without=()), in_ci=False),
        Kind(
            "ubsan",
            "C++ tests, undefined-behaviour sanitizer alone",
            _cpp("--config=ubsan", without=()),
            in_ci=False,
        ),
        Kind("bench", "each benchmark starts and ends", _bench, in_ci=False, needs_package=True),
        Kind(
            "vm",
            "tests/vm in a virtual machine (QEMU): systemd and cgroup v2; installs what that needs with apt",
            _vm,
            in_ci=False,
            needs_package=True,
        ),
        Kind("wheel", "the repaired wheel runs in a bare environment", _wheel, in_ci=False),
    )
}
