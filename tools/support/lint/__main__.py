"""Runs every rule over the tree and prints what it finds."""

import argparse
import collections
import pathlib
import sys

from lint import cpp_rules, external, limit_rules, text_rules, tree_rules
from lint.source import Finding, Source, tree_files

FILE_RULES = (*text_rules.RULES, *cpp_rules.RULES)


def ratchet(root: pathlib.Path) -> collections.Counter:
    """Findings that are known and may only become fewer: lines of `rule path count`."""
    allowed: collections.Counter = collections.Counter()
    path = root / "tools/support/lint/ratchet.txt"
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                rule, name, count = line.split()
                allowed[rule, name] = int(count)
    return allowed


def find(root: pathlib.Path, names: list[str], everything: bool) -> list[Finding]:
    sources = [source for name in names if (source := Source.read(root, name))]
    findings = [finding for source in sources for rule in FILE_RULES for finding in rule(source)]
    if everything:
        findings += tree_rules.check(root, names)
        findings += limit_rules.check(root, names)
    findings += external.check(root, names, everything)
    allowed = ratchet(root)
    counts = collections.Counter((f.rule, f.path) for f in findings)
    return sorted(f for f in findings if counts[f.rule, f.path] > allowed[f.rule, f.path])


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/lint")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[3])
    parser.add_argument("files", nargs="*", help="relative to the root; all if none is named")
    args = parser.parse_args()
    findings = find(args.root, args.files or tree_files(args.root), everything=not args.files)
    for finding in findings:
        print(finding)
    print(f"lint: {len(findings)} findings", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
