"""Rules for the tree as a whole."""

import pathlib

from lint.source import Finding

# Each of these, where it exists, says in its README what it is for, its files, threading and invariants.
MODULES = (
    "base",
    "bench",
    "client/cpp",
    "client/cpp/ctl",
    "client/python",
    "daemon",
    "daemon/launcher",
    "deploy/systemd",
    "examples",
    "message",
    "proto",
    "rdma",
    "tensor",
    "tests",
    "tools",
)


def check(root: pathlib.Path, names: list[str]) -> list[Finding]:
    findings = []
    for module in MODULES:
        if any(n.startswith(module + "/") for n in names) and f"{module}/README.md" not in names:
            findings.append(Finding(f"{module}/README.md", 1, "readme", "a module without README"))
    return findings
