"""The list of tests that are left out (tests/disabled_tests.txt says its format)."""

import pathlib
import re


class Disabled:
    def __init__(self, names: list[str]) -> None:
        self.names = names

    @classmethod
    def read(cls, path: pathlib.Path) -> "Disabled":
        names = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            parts = re.split(r"\s{2,}", line.strip(), maxsplit=1)
            if len(parts) != 2:
                raise SystemExit(f"{path}:{number}: expected a test's name, two spaces, and the reason")
            names.append(parts[0])
        return cls(names)

    def targets(self) -> list[str]:
        """C++ targets that are left out whole."""
        return [n for n in self.names if n.startswith("//") and "::" not in n]

    def cases(self) -> list[str]:
        """Test cases of C++ targets."""
        return [n for n in self.names if n.startswith("//") and "::" in n]

    def in_file(self, path: str) -> list[str]:
        """Python tests of one file; the file itself if it is left out whole."""
        return [n for n in self.names if n == path or n.startswith(path + "::")]
