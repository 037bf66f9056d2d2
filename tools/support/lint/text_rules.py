"""Rules for every kind of text file."""

import re
from collections.abc import Iterator

from lint.source import Finding, Source

LINES_MAX = 500
HEADER_LINES_MAX = 200

# Written apart, so that this file does not break its own rule.
_MACHINE_PATH = re.compile("(?<![\\w.])/(?:" + "wo" + "rk/|" + "ro" + "ot/|" + "ho" + "me/[a-z]+/)")
_TODO = re.compile(r"\b" + "TO" + r"DO\b")
_TODO_GOOD = re.compile("TO" + r"DO\([a-z]+, #\d+\)")
_LEFT_OVER = re.compile(r"\b(?:" + "FIX" + "ME|" + "X{3}" + r")\b")

_SLEEPS = {
    (".cc", ".h"): re.compile(
        r"\b(sleep_for|sleep_until|usleep|nanosleep|absl::SleepFor)\s*\(|(?<![\w.:>])sleep\s*\("
    ),
    (".py",): re.compile(r"\btime\.sleep\s*\(|^from time import .*\bsleep\b"),
    (".sh",): re.compile(r"^\s*sleep\s"),
}


def size(source: Source) -> Iterator[Finding]:
    count = len(source.lines)
    if source.is_code and count > LINES_MAX:
        yield source.finding(LINES_MAX + 1, "file-size", f"{count} lines, at most {LINES_MAX}: split by noun")
    elif source.path.endswith(".h") and count > HEADER_LINES_MAX:
        yield source.finding(
            HEADER_LINES_MAX + 1, "header-size", f"{count} lines, at most {HEADER_LINES_MAX}"
        )


def machine_path(source: Source) -> Iterator[Finding]:
    for number, line in enumerate(source.lines, 1):
        if found := _MACHINE_PATH.search(line):
            yield source.finding(number, "machine-path", f"a path of one machine: {found[0]}")


def todo(source: Source) -> Iterator[Finding]:
    if not source.is_code:
        return
    for number, line in enumerate(source.lines, 1):
        if _TODO.search(line) and not _TODO_GOOD.search(line):
            yield source.finding(number, "todo", "needs a kind and an issue: " + "TO" + "DO(perf, #12)")
        if found := _LEFT_OVER.search(line):
            yield source.finding(number, "todo", f"{found[0]} cannot land")


def sleep_in_test(source: Source) -> Iterator[Finding]:
    if not source.is_test:
        return
    for suffixes, pattern in _SLEEPS.items():
        if not source.path.endswith(suffixes):
            continue
        for number, line in enumerate(source.lines, 1):
            if pattern.search(line) and not line.lstrip().startswith(("//", "#")):
                yield source.finding(number, "sleep-in-test", "wait for an event or step the time")


def trailing_space(source: Source) -> Iterator[Finding]:
    for number, line in enumerate(source.lines, 1):
        if line != line.rstrip() and (source.is_code or source.path.endswith((".md", ".txt", ".toml"))):
            yield source.finding(number, "trailing-space", "space at the end of the line")


RULES = (size, machine_path, todo, sleep_in_test, trailing_space)
