"""Folders of this host that the guest reads all the time, as a disk: on the shared root each opening of a file is a
request to the host, and an interpreter's start thousands of them."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import tempfile

from machine.errors import VmError

SLACK = 1.3  # a filesystem's own share
SLACK_MIB = 16


def build(target: pathlib.Path, folders: dict[pathlib.Path, tuple[str, ...]]) -> None:
    """`folders`: each with the patterns of what is left out of it. The guest sees the copies in
    their places, and nothing else there."""
    with tempfile.TemporaryDirectory(prefix="monarch-vm-") as name:
        root = pathlib.Path(name)
        places = []
        for number, (folder, left_out) in enumerate(folders.items()):
            patterns = shutil.ignore_patterns(*left_out)

            def ignored(at: str, names: list[str], top: str = str(folder), patterns=patterns) -> set[str]:
                return set(patterns(at, names)) if at == top else set()

            shutil.copytree(folder, root / str(number), symlinks=True, ignore=ignored)
            places.append(f"{number} {folder}\n")
        (root / "places").write_text("".join(places))
        root.chmod(0o755)
        size = sum(path.lstat().st_size + 4096 for path in root.rglob("*"))
        mib = int(size * SLACK) // (1 << 20) + SLACK_MIB
        made = subprocess.run(
            [
                "/sbin/mke2fs",
                "-q",
                "-F",
                "-t",
                "ext4",
                "-O",
                "^has_journal",
                "-d",
                name,
                str(target),
                f"{mib}M",
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
        if made.returncode != 0:
            raise VmError(f"mke2fs: {made.stderr.strip()}")
