"""The programs that come with the package, as console scripts."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def _run(name: str) -> NoReturn:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    # What was installed with it, as py-spy, is found also where the environment is not active.
    os.environ["PATH"] = os.pathsep.join(
        [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
    )
    try:
        os.execv(path, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: cannot run {path}: {error.strerror}")


def monarchctl() -> NoReturn:
    _run("monarchctl")


def monarchd() -> NoReturn:
    _run("monarchd")
