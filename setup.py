"""Builds the native parts with Bazel and puts them into the wheel. Everything else is in pyproject.toml."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parent
PARTS = {  # Bazel target: its place in the wheel
    "//client/python:_runtime.so": "monarch/_runtime.abi3.so",
    "//client/python:_control.so": "monarch/_control.abi3.so",
    "//daemon:monarchd": "monarch/bin/monarchd",
    "//daemon/launcher:monarch-launcher": "monarch/bin/monarch-launcher",
    "//client/cpp/ctl:monarchctl": "monarch/bin/monarchctl",
}


class CleanBuildPy(build_py):
    """Starts from an empty folder: setuptools keeps modules there that have left the tree."""

    def run(self):
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BazelBuild(build_ext):
    def run(self):
        bazel = [os.environ.get("BAZEL", "bazel"), *os.environ.get("BAZEL_STARTUP", "").split()]
        env = dict(os.environ, MONARCH_PYTHON=os.environ.get("MONARCH_PYTHON", sys.executable))
        flags = ["--config=opt"]
        if subprocess.call([*bazel, "build", *flags, *PARTS], cwd=ROOT, env=env) != 0:
            raise SystemExit("setup.py: bazel build failed; its messages are above")
        made_in = subprocess.check_output(
            [*bazel, "info", *flags, "bazel-bin"], cwd=ROOT, env=env, text=True
        ).strip()
        base = ROOT / "client/python" if self.inplace else pathlib.Path(self.build_lib)
        for target, place in PARTS.items():
            made = pathlib.Path(made_in, target.removeprefix("//").replace(":", "/"))
            goal = base / place
            goal.parent.mkdir(parents=True, exist_ok=True)
            goal.unlink(missing_ok=True)
            shutil.copyfile(made, goal)
            goal.chmod(0o755)
            subprocess.check_call(["strip", "--strip-unneeded", str(goal)])


def version() -> str:
    """The daemon's and the package's are one, and stand in one place."""
    return re.search(r'kVersion\[\] = "([^"]+)"', (ROOT / "base/version.h").read_text())[1]


setup(
    version=version(),
    # Named so that the wheel counts as a platform wheel; BazelBuild makes all of it.
    ext_modules=[Extension("monarch._runtime", [], py_limited_api=True)],
    cmdclass={"build_ext": BazelBuild, "build_py": CleanBuildPy},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
