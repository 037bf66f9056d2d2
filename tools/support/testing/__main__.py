"""Runs kinds of tests one after the other, then prints what failed and the closing line."""

import argparse
import os
import pathlib
import signal
import subprocess
import sys

from testing import bazel, conformance, python
from testing.disabled import Disabled
from testing.kinds import KINDS, ROOT, VENV, Kind, Options
from testing.tally import Stopwatch, Tally


def parse() -> argparse.Namespace:
    kinds = "\n".join(f"  {k.name:12} {k.help}{'' if k.in_ci else ' [--full]'}" for k in KINDS.values())
    parser = argparse.ArgumentParser(
        prog="./tools/test",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs tests and closes with the line `N passed, N failed`; ends with 1 if anything failed.",
        epilog=f"kinds (none named: all that are not marked [--full]):\n{kinds}",
    )
    parser.add_argument("kinds", nargs="*", metavar="kind")
    parser.add_argument(
        "--full", action="store_true", help="the kinds marked [--full] too, longer fuzzing, more rounds"
    )
    parser.add_argument(
        "--disabled-tests", type=pathlib.Path, metavar="FILE", help="in place of tests/disabled_tests.txt"
    )
    parser.add_argument("--pytest", nargs="+", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := [k for k in args.kinds if k not in KINDS]:
        parser.error(f"no such kind: {', '.join(unknown)}")
    return args


def prepare(kinds: list[Kind]) -> Tally:
    """Set-up and, where a kind needs it, the installed package: a failure is one of the run."""
    tally = Tally()
    steps = [ROOT / "tools/setup"]
    if any(kind.needs_package for kind in kinds):
        steps.append(ROOT / "tools/install")
    for step in steps:
        status = subprocess.run([step], stdin=subprocess.DEVNULL, check=False).returncode
        if status != 0:
            tally.fail(f"{step.relative_to(ROOT)} (ended with {status})")
            break
    return tally


def run_kinds(kinds: list[Kind], options: Options) -> Tally:
    total = prepare(kinds)
    ready = not total.failures
    lines = []
    for kind in kinds:
        if kind.needs_package and not ready:
            lines.append(f"  {kind.name:12} not run: the package is not installed")
            continue
        print(f"\n==== {kind.name}: {kind.help}", flush=True)
        watch = Stopwatch()
        tally = kind.run(options)
        if not tally.passed and not tally.failures and not options.disabled.names:
            tally.fail(f"{kind.name}: no test ran")
        total.add(tally)
        lines.append(f"  {kind.name:12} {tally.closing_line()}  ({watch.seconds():.0f} s)")
    print("\n==== summary")
    print("\n".join(lines))
    return total


def run_outside(paths: list[pathlib.Path], options: Options) -> tuple[Tally, bool]:
    """The tally, and whether its failures are told already."""
    if not paths[0].exists():
        raise SystemExit(f"conformance: no such file or folder: {paths[0]}")
    folder = conformance.tests_folder(paths[0]) if paths[0].is_dir() else None
    if folder is not None:
        return conformance.run(VENV, folder, [str(path) for path in paths[1:]]), True
    paths = [path.resolve(strict=True) for path in paths]
    files = [f for path in paths for f in (python.test_files(path) if path.is_dir() else [path])]
    return python.run_tests(VENV, ROOT, files, options.disabled), False


def heed_signals() -> None:
    """A background job, or one of nohup, has signals ignored, and so would all programs that the tests signal."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def main() -> int:
    args = parse()
    heed_signals()
    disabled = Disabled.read(args.disabled_tests or ROOT / "tests/disabled_tests.txt")
    options = Options(disabled, args.full)
    told = False
    if args.full:
        os.environ["MONARCH_TEST_FULL"] = "1"  # for the kinds that run pytest
    try:
        if args.pytest:
            total, told = run_outside(args.pytest, options)
        else:
            named = [KINDS[name] for name in args.kinds]
            total = run_kinds(named or [k for k in KINDS.values() if k.in_ci or args.full], options)
    finally:
        if os.environ.get("CI"):
            bazel.shutdown()
    for name in () if told else total.failures:
        print(f"FAILED {name}")
    if disabled.names:
        print(f"{len(disabled.names)} disabled")
    print(total.closing_line(), flush=True)
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
