"""Which tests of a checkout belong to which tier (conformance_tiers.txt says what the tiers mean)."""

import dataclasses
import pathlib

COUNTED = ("P", "A", "E")


@dataclasses.dataclass
class File:
    """One test file: the tier of its tests, and those that belong to another."""

    name: str
    tier: str
    others: dict[str, str] = dataclasses.field(default_factory=dict)

    def tier_of(self, test: str) -> str:
        """`test`: a node id, or a function's name."""
        function = test.split("[", 1)[0].rsplit("::", 1)[-1]
        return self.others.get(function, self.tier)

    def is_counted(self) -> bool:
        """Whether any test of it may be."""
        return self.tier in COUNTED or any(tier in COUNTED for tier in self.others.values())


def read(path: pathlib.Path) -> list[File]:
    files: list[File] = []
    tier = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if not line.startswith(" "):
            files.append(File(words[0], words[1]))
            continue
        if not line.startswith("    "):
            tier = words.pop(0)
        files[-1].others.update(dict.fromkeys(words, tier))
    return files
