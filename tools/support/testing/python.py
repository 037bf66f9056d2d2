"""Python tests and examples: each file in a process of its own, so that a crash or a hang costs only that file."""

import os
import pathlib
import tempfile
import xml.etree.ElementTree

from testing import command
from testing.disabled import Disabled
from testing.tally import Tally

FILE_TIMEOUT_S = 600
FULL_FILE_TIMEOUT_S = 3600  # one of them runs for ten minutes, and longer beside others
EXAMPLE_TIMEOUT_S = 120


def environment(venv: pathlib.Path, python_path: pathlib.Path | None = None) -> dict[str, str]:
    env = dict(
        os.environ, PATH=f"{venv}/bin:{os.environ['PATH']}", VIRTUAL_ENV=str(venv), PYTHONUNBUFFERED="1"
    )
    env.pop("PYTHONPATH", None)  # ours is for this runner
    env.pop("MONARCH_ADDRESS", None)
    if python_path:
        env["PYTHONPATH"] = str(python_path)
    return env


def test_files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(
        p for p in folder.rglob("*.py") if p.name.startswith("test_") or p.name.endswith("_test.py")
    )


def run_tests(venv: pathlib.Path, root: pathlib.Path, files: list[pathlib.Path], disabled: Disabled) -> Tally:
    tally = Tally()
    for file in files:
        inside = file.is_relative_to(root)
        name = str(file.relative_to(root)) if inside else str(file)
        left_out = disabled.in_file(name)
        if name not in left_out:
            env = environment(venv, None if inside else file.parent)
            tally.add(_run_file(venv, root, name, left_out, env))
    return tally


def _run_file(
    venv: pathlib.Path, root: pathlib.Path, name: str, left_out: list[str], env: dict[str, str]
) -> Tally:
    with tempfile.TemporaryDirectory(prefix="monarch-test-") as folder:
        report = pathlib.Path(folder, "report.xml")
        line = pytest_command(venv, root, report, left_out)
        limit_s = FULL_FILE_TIMEOUT_S if env.get("MONARCH_TEST_FULL") else FILE_TIMEOUT_S
        status = command.run([*line, name], limit_s, root, env)
        tally = read_report(report, name)
    nothing_collected = status == 5
    if status != 0 and not nothing_collected and not tally.failures:
        tally.fail(f"{name} (ended with {status})")
    return tally


def pytest_command(
    venv: pathlib.Path, root: pathlib.Path, report: pathlib.Path, left_out: list[str]
) -> list[str]:
    """Without the file that it is to run."""
    line = [
        str(venv / "bin/python"),
        "-m",
        "pytest",
        "-v",
        "--tb=short",
        "--color=no",
        "-p",
        "no:cacheprovider",
    ]
    line += [f"--rootdir={root}", f"--config-file={root}/pyproject.toml", f"--junitxml={report}"]
    return line + [f"--deselect={test}" for test in left_out]


def read_report(report: pathlib.Path, name: str) -> Tally:
    """Empty if the process did not live to write it."""
    tally = Tally()
    if not report.exists():
        return tally
    failed: dict[str, None] = {}
    passed = 0
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        title = f"{name}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed[title] = None
        elif case.find("skipped") is None:
            passed += 1
    tally.passed = passed
    tally.failures = list(failed)
    return tally


def run_examples(venv: pathlib.Path, root: pathlib.Path, disabled: Disabled) -> Tally:
    tally = Tally()
    for file in sorted((root / "examples").glob("*.py")):
        name = str(file.relative_to(root))
        if name in disabled.names:
            continue
        print(f"$ {name}", flush=True)
        status = command.run([str(venv / "bin/python"), name], EXAMPLE_TIMEOUT_S, root, environment(venv))
        if status == 0:
            tally.passed += 1
        else:
            tally.fail(f"{name} (ended with {status})")
    return tally
