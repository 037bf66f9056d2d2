"""Rules for C++ and build files."""

import re
from collections.abc import Iterator

from lint.source import Finding, Source

_CLOCK = re.compile(
    r"\b(steady_clock|system_clock|high_resolution_clock)::now\b|\babsl::Now\s*\(|\bclock_gettime\s*\("
)
_WAIT_ANY = re.compile(r"\bwaitpid\s*\(\s*-1\b|\bwait4\s*\(\s*-1\b|\bwaitid\s*\(\s*P_ALL\b")
_INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
_CLASS = re.compile(r"^(?:class|struct ABSL_LOCKABLE)\s[^;]*$")
_NATIVE = re.compile(r"^\s*(?:native\.)?(cc_(?:library|binary|test|import|shared_library))\s*\(")
_FOREIGN = re.compile(r"^(grpc|grpcpp|google/protobuf|infiniband|rdma|torch|ATen|c10)/|\.pb\.h$|^proto/")


def pragma_once(source: Source) -> Iterator[Finding]:
    if source.path.endswith(".h") and "#pragma once" not in source.lines:
        yield source.finding(1, "pragma-once", "a header begins with #pragma once")


def clock(source: Source) -> Iterator[Finding]:
    """Only base knows the system's clocks; benchmarks measure with them."""
    if not source.is_cpp or source.path.startswith(("base/", "bench/")):
        return
    for number, line in enumerate(source.lines, 1):
        if found := _CLOCK.search(line.split("//")[0]):
            yield source.finding(number, "clock", f"{found[0]}: take the time from base/clock.h")


def wait_any(source: Source) -> Iterator[Finding]:
    if not source.is_cpp:
        return
    for number, line in enumerate(source.lines, 1):
        if _WAIT_ANY.search(line.split("//")[0]):
            yield source.finding(
                number, "wait-any", "reap by pid: waiting for any child takes others' children away"
            )


def include_path(source: Source) -> Iterator[Finding]:
    if not source.is_cpp:
        return
    for number, line in enumerate(source.lines, 1):
        found = _INCLUDE.match(line)
        if found and found[1] == '"' and ("/" not in found[2] or found[2].startswith(".")):
            yield source.finding(
                number, "include-path", f'"{found[2]}": write paths from the root of the tree'
            )


def public_header(source: Source) -> Iterator[Finding]:
    if not (source.path.startswith("client/cpp/monarch/") and source.path.endswith(".h")):
        return
    for number, line in enumerate(source.lines, 1):
        found = _INCLUDE.match(line)
        if found and _FOREIGN.search(found[2]):
            yield source.finding(number, "public-header", f"{found[2]} in a public header")


def threading(source: Source) -> Iterator[Finding]:
    """A class in a header says who may use it at the same time."""
    if not source.path.endswith(".h"):
        return
    for index, line in enumerate(source.lines):
        if not _CLASS.match(line) or not _has_body(source.lines, index):
            continue
        comment = []
        above = index - 1
        while above >= 0 and (source.lines[above].startswith(("//", "template", "requires", " "))):
            comment.append(source.lines[above])
            above -= 1
        if not any("Threading:" in text or "hread-safe" in text for text in comment):
            yield source.finding(index + 1, "threading", "the class comment needs a line 'Threading: ...'")


def _has_body(lines: tuple[str, ...], index: int) -> bool:
    for line in lines[index : index + 5]:
        if "{" in line:
            return True
        if ";" in line:
            return False
    return False


def native_rule(source: Source) -> Iterator[Finding]:
    if not source.path.endswith(("BUILD.bazel", ".bzl")) or source.path.startswith(
        ("tools/bazel/", "third_party/")
    ):
        return
    for number, line in enumerate(source.lines, 1):
        if found := _NATIVE.match(line):
            yield source.finding(number, "native-rule", f"{found[1]}: use the macros of tools/bazel/cc.bzl")


RULES = (pragma_once, clock, wait_any, include_path, public_header, threading, native_rule)
