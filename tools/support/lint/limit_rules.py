"""Rules for base/limits.h: a limit that nothing reads, or that no page tells of, is none."""

import pathlib
import re

from lint.source import Finding

_HEADER = "base/limits.h"
_PAGE = "docs/limits.md"
_FIELD = re.compile(r"^  int64_t (\w+) = ")
_READ = re.compile(r"\b[Ll]imits_?(?:\(\))?(?:\.|->)(\w+)")


def check(root: pathlib.Path, names: list[str]) -> list[Finding]:
    if _HEADER not in names:
        return []
    header = (root / _HEADER).read_text(encoding="utf-8").splitlines()
    fields = {found[1]: number for number, line in enumerate(header, 1) if (found := _FIELD.match(line))}
    page = (root / _PAGE).read_text(encoding="utf-8") if _PAGE in names else ""
    read = {field for name in names if _is_code(name) for field in _read_in(root / name)}
    findings = []
    for field, number in fields.items():
        if field not in read:
            findings.append(Finding(_HEADER, number, "limit", f"{field}: no code reads it"))
        if f"| `{field}` |" not in page:
            findings.append(Finding(_HEADER, number, "limit", f"{field}: {_PAGE} does not tell of it"))
    return findings


def _is_code(name: str) -> bool:
    return (
        name.endswith((".cc", ".h"))
        and not name.endswith("_test.cc")
        and not name.startswith(("base/limits", "tests/", "bench/"))
    )


def _read_in(path: pathlib.Path) -> list[str]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [field for line in lines for field in _READ.findall(line.split("//")[0])]
