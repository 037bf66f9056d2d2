"""A digest of everything the installed package is made of; with --installed: whether .venv holds all of it."""

import hashlib
import pathlib
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("base", "proto", "message", "rdma", "daemon", "client", "tensor", "third_party", "tools/bazel")
FILES = ("BUILD.bazel", "WORKSPACE", ".bazelrc", "setup.py", "pyproject.toml", "README.md")
SYSTEM = (
    "libgrpc++-dev",
    "libprotobuf-dev",
    "libabsl-dev",
    "g++",
    "protobuf-compiler",
    "protobuf-compiler-grpc",
)
PARTS = (
    "__init__.py",
    "_runtime.abi3.so",
    "_control.abi3.so",
    "bin/monarchd",
    "bin/monarch-launcher",
    "bin/monarchctl",
)


def digest() -> str:
    total = hashlib.sha256()
    paths = [p for f in FOLDERS for p in (ROOT / f).rglob("*")] + [ROOT / f for f in FILES]
    for path in sorted(paths):
        if "__pycache__" in path.parts or path.suffix in (".so", ".pyc") or not path.is_file():
            continue
        total.update(f"{path.relative_to(ROOT)} {path.stat().st_mode & 0o100} ".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    versions = subprocess.run(
        ["dpkg-query", "-W", "-f=${Package} ${Version}\n", *SYSTEM], capture_output=True, check=False
    )
    total.update(versions.stdout)
    total.update(sys.version.encode())
    return total.hexdigest()


def installed() -> bool:
    package = pathlib.Path(sysconfig.get_paths()["purelib"]) / "monarch"
    return all((package / part).is_file() for part in PARTS)


if __name__ == "__main__":
    if sys.argv[1:] == ["--installed"]:
        sys.exit(0 if installed() else 1)
    print(digest())
