"""Checkers that are programs of their own: clang-format, shellcheck, ruff, mypy. What is not installed is left out."""

import pathlib
import re
import shutil
import subprocess

from lint.source import Finding

_PLACE = re.compile(r"^(?P<path>[^:\n]+):(?P<line>\d+)(?::\d+)?: (?P<text>.*)$")


def _run(root: pathlib.Path, command: list[str], paths: list[str]) -> str:
    done = subprocess.run([*command, *paths], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def _parse(root: pathlib.Path, rule: str, output: str) -> list[Finding]:
    findings = set()
    for line in output.splitlines():
        found = _PLACE.match(line)
        if found and ": note:" not in line:
            path = found["path"].removeprefix(f"{root}/")
            findings.add(Finding(path, int(found["line"]), rule, found["text"]))
    return sorted(findings)


def _clang_format(root: pathlib.Path, names: list[str]) -> list[Finding]:
    tool = shutil.which("clang-format-14")
    paths = [n for n in names if n.endswith((".cc", ".h"))]
    if not tool or not paths:
        return []
    findings = _parse(root, "format", _run(root, [tool, "--dry-run"], paths))
    first = {f.path: f for f in reversed(findings)}  # one for each file says it
    return [Finding(f.path, f.line, "format", "run ./tools/format") for f in first.values()]


def _shellcheck(root: pathlib.Path, names: list[str]) -> list[Finding]:
    tool = shutil.which("shellcheck")
    paths = [n for n in names if n.endswith(".sh") or _is_shell(root / n)]
    if not tool or not paths:
        return []
    output = _run(root, [tool, "-x", "-f", "gcc", "-S", "warning"], paths)
    return _parse(root, "shellcheck", output)


def _is_shell(path: pathlib.Path) -> bool:
    if path.suffix:
        return False
    with path.open("rb") as file:
        return file.readline().startswith((b"#!/bin/sh", b"#!/bin/bash", b"#!/usr/bin/env bash"))


def _python(root: pathlib.Path, names: list[str], everything: bool) -> list[Finding]:
    folder = root / ".venv/bin"
    paths = [n for n in names if n.endswith((".py", ".pyi"))]
    findings: list[Finding] = []
    if not paths:
        return findings
    if (folder / "ruff").exists():
        ruff = str(folder / "ruff")
        findings += _parse(root, "ruff", _run(root, [ruff, "check", "-q", "--output-format=concise"], paths))
        for line in _run(root, [ruff, "format", "--check"], paths).splitlines():
            if line.startswith("Would reformat: "):
                findings.append(Finding(line.split(": ", 1)[1], 1, "format", "run ./tools/format"))
    if everything and (folder / "mypy").exists() and (root / "client/python/monarch/__init__.py").exists():
        findings += _parse(root, "mypy", _run(root, [str(folder / "mypy"), "--no-error-summary"], []))
    return findings


def check(root: pathlib.Path, names: list[str], everything: bool) -> list[Finding]:
    return [*_clang_format(root, names), *_shellcheck(root, names), *_python(root, names, everything)]
