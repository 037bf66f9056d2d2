"""One file of the tree, and what a rule finds in it."""

import dataclasses
import pathlib
import subprocess

CODE_SUFFIXES = (".cc", ".h", ".py", ".pyi", ".sh", ".bzl", ".proto", ".bazel")


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


@dataclasses.dataclass(frozen=True)
class Source:
    path: str  # relative to the root, with forward slashes
    lines: tuple[str, ...]

    @classmethod
    def read(cls, root: pathlib.Path, path: str) -> "Source | None":
        """None for what is not text."""
        try:
            return cls(path, tuple((root / path).read_text(encoding="utf-8").splitlines()))
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            return None

    @property
    def is_cpp(self) -> bool:
        return self.path.endswith((".cc", ".h"))

    @property
    def is_script(self) -> bool:
        return bool(self.lines) and self.lines[0].startswith("#!")

    @property
    def is_code(self) -> bool:
        return self.path.endswith(CODE_SUFFIXES) or self.is_script

    @property
    def is_test(self) -> bool:
        name = self.path.rsplit("/", 1)[-1]
        return self.path.startswith("tests/") or name.startswith("test_") or "_test." in name

    def finding(self, line: int, rule: str, message: str) -> Finding:
        return Finding(self.path, line, rule, message)


def tree_files(root: pathlib.Path) -> list[str]:
    """What git tracks or would track; without git, every file outside hidden folders and build outputs."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0 and (root / ".git").exists():
        names = [n for n in listed.stdout.split("\0") if n]
    else:
        names = [str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()]
        names = [n for n in names if not n.startswith((".", "build/", "bazel-"))]
    return sorted(n for n in set(names) if (root / n).is_file())
