"""The archive that a guest starts from: busybox, the modules that its root needs, and `init`."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import tempfile

from machine.errors import VmError

HERE = pathlib.Path(__file__).parent
BUSYBOX = pathlib.Path("/bin/busybox")
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_blk", "crc32c_generic", "ext4")
EMPTY = ("bin", "proc", "sys", "dev", "modules", "r", "low", "up", "img", "hold")


def kernel() -> tuple[pathlib.Path, str]:
    """The newest installed one, with its release. Errors: there is none that has modules."""
    found = [
        (image, release)
        for image in pathlib.Path("/boot").glob("vmlinuz-*")
        if pathlib.Path(
            "/lib/modules", release := image.name.removeprefix("vmlinuz-"), "modules.dep"
        ).exists()
    ]
    if not found:
        raise VmError("no kernel with modules in /boot and /lib/modules: install linux-image-amd64")
    return max(found, key=lambda pair: pair[0].stat().st_mtime)


def module_files(release: str) -> list[pathlib.Path]:
    """With what they depend on, in the order of loading."""
    files: dict[pathlib.Path, None] = {}
    for module in MODULES:
        shown = subprocess.run(
            ["/sbin/modprobe", "-S", release, "--show-depends", module],
            capture_output=True,
            text=True,
            timeout=30,
        )
        if shown.returncode != 0:
            raise VmError(f"modprobe --show-depends {module}: {shown.stderr.strip()}")
        lines = [line.split() for line in shown.stdout.splitlines()]
        files |= {pathlib.Path(words[1]): None for words in lines if words[:1] == ["insmod"]}
    return list(files)


def build(target: pathlib.Path, release: str) -> None:
    with tempfile.TemporaryDirectory(prefix="monarch-vm-") as name:
        root = pathlib.Path(name)
        for directory in EMPTY:
            (root / directory).mkdir()
        shutil.copy(BUSYBOX, root / "bin/busybox")
        shutil.copy(HERE / "init", root / "init")
        (root / "init").chmod(0o755)
        modules = module_files(release)
        for file in modules:
            shutil.copy(file, root / "modules")
        (root / "order").write_text("".join(f"{file.name}\n" for file in modules))
        paths = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
        with target.open("wb") as archive:
            made = subprocess.run(
                ["cpio", "--create", "--format=newc", "--quiet"],
                cwd=root,
                input="\n".join(paths).encode(),
                stdout=archive,
                timeout=60,
            )
        if made.returncode != 0:
            raise VmError(f"cpio ended with {made.returncode}")
