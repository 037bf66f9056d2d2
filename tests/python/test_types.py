"""What type checkers make of programs: in typed/ they find an error in each line marked "# wrong", and in no other."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

import monarch
import pytest

SAMPLES = pathlib.Path(__file__).parent / "typed"
PACKAGE = pathlib.Path(monarch.__file__).parents[1]
CHECK_S = 100

Found = dict[str, dict[int, str]]  # by file and line


def _run(line: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *line],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=CHECK_S,
        check=False,
    )


def mypy(folder: pathlib.Path) -> Found:
    path = {} if "site-packages" in PACKAGE.parts else {"MYPYPATH": str(PACKAGE)}
    line = ["mypy", "--strict", "--output=json", f"--config-file={os.devnull}"]
    done = _run([*line, f"--cache-dir={folder / 'cache'}", str(folder)], **path)
    assert done.returncode == 1, done.stdout + done.stderr
    found: Found = {}
    for text in done.stdout.splitlines():
        report = json.loads(text)
        if report["severity"] == "error":
            found.setdefault(pathlib.Path(report["file"]).name, {})[report["line"]] = report["message"]
    return found


def pyright(folder: pathlib.Path) -> Found:
    config = {"typeCheckingMode": "strict", "extraPaths": [str(PACKAGE)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    line = ["pyright", f"--project={folder}", f"--pythonpath={sys.executable}", "--outputjson"]
    done = _run(line, PYRIGHT_PYTHON_IGNORE_WARNINGS="1")
    assert done.returncode == 1, done.stdout + done.stderr
    found: Found = {}
    for report in json.loads(done.stdout)["generalDiagnostics"]:
        line_number = report["range"]["start"]["line"] + 1
        found.setdefault(pathlib.Path(report["file"]).name, {})[line_number] = report["message"]
    return found


@pytest.fixture(scope="module", params=[mypy, pyright], ids=["mypy", "pyright"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    checker: Callable[[pathlib.Path], Found] = request.param
    folder = tmp_path_factory.mktemp("samples")
    shutil.copytree(SAMPLES, folder, dirs_exist_ok=True)
    return checker(folder)


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_wrong_lines_and_no_others_are_errors(found: Found, sample: pathlib.Path) -> None:
    lines = sample.read_text(encoding="utf-8").splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    errors = found.get(sample.name, {})
    assert wrong, "a sample without a wrong line does not show that it was checked"
    assert {n: text for n, text in errors.items() if n not in wrong} == {}
    assert wrong - set(errors) == set()
