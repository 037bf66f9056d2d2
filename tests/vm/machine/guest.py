"""One guest: booted, given steps to run, and gone. Each wait is bounded."""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import re
import select
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator
from types import TracebackType

from machine import image as disk
from machine import initramfs
from machine.errors import VmError

BOOT_S = 180.0  # 12 s on an idle machine; all of it is emulated
END_S = 30.0
CONSOLE_LINES = 40  # in an error
MEMORY_MIB = 3072
CPUS = 2


@dataclasses.dataclass(frozen=True)
class Step:
    """A shell command that the guest runs as root; what it writes is `<name>.log` in the job's folder."""

    name: str
    command: str
    timeout_s: float


@dataclasses.dataclass(frozen=True)
class Outcome:
    step: Step
    status: int  # 124: its time was up
    output: str
    seconds: float


class Guest:
    """Use as a context manager. `job`: a folder that host and guest share (`/job` there); the console goes into its
    `console.log`. The steps run in their order, then the guest switches itself off. Threading: confined to one.
    """

    def __init__(
        self,
        job: pathlib.Path,
        steps: list[Step],
        prepare: str = "true",
        copies: dict[pathlib.Path, tuple[str, ...]] | None = None,
        folders: tuple[pathlib.Path, ...] = (),
    ) -> None:
        """`prepare`: a command that goes before the steps. `copies`: folders that it reads from a disk of its own, see
        `image.build`. `folders`: what it needs of the host, also if they are below /tmp."""
        self._job = job
        self._steps = steps
        self._prepare = prepare
        self._copies = copies or {}
        self._kept = [folder for folder in folders if pathlib.Path("/tmp") in folder.parents]
        self._last: collections.deque[str] = collections.deque(maxlen=CONSOLE_LINES)
        self._rest = b""

    def __enter__(self) -> Guest:
        image, release = initramfs.kernel()
        self._job.mkdir(parents=True, exist_ok=True)
        self._write_agent()
        (self._job / "kept").write_text("".join(f"{folder}\n" for folder in self._kept))
        self._archive = tempfile.NamedTemporaryFile(prefix="monarch-vm-", suffix=".cpio")
        initramfs.build(pathlib.Path(self._archive.name), release)
        self._disk = tempfile.NamedTemporaryFile(prefix="monarch-vm-", suffix=".ext4")
        if self._copies:
            disk.build(pathlib.Path(self._disk.name), self._copies)
        self._console = (self._job / "console.log").open("wb")
        self._process = subprocess.Popen(
            self._command(image), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._console.close()
        self._archive.close()
        self._disk.close()

    def _command(self, image: pathlib.Path) -> list[str]:
        # KVM is not asked for: the same tests run on hosts without it, and inside other guests.
        share = "security_model=none,multidevs=remap"
        return [
            *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(CPUS)),
            *("-m", str(MEMORY_MIB), "-display", "none", "-no-reboot", "-nodefaults", "-serial", "stdio"),
            *("-kernel", str(image), "-initrd", self._archive.name),
            *("-append", "console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off audit=0"),
            *("-fsdev", f"local,id=root,path=/,readonly=on,{share}"),
            *("-device", "virtio-9p-pci,fsdev=root,mount_tag=root"),
            *("-fsdev", f"local,id=job,path={self._job},{share}"),
            *("-device", "virtio-9p-pci,fsdev=job,mount_tag=job"),
            *(("-drive", f"if=virtio,format=raw,readonly=on,file={self._disk.name}") if self._copies else ()),
        ]

    def _write_agent(self) -> None:
        lines = ["cd /job", f"{self._prepare} || echo VM-FAILED prepare", "echo VM-READY"]
        for step in self._steps:
            (self._job / f"{step.name}.sh").write_text(step.command + "\n")
            limit = f"timeout -k 5 {step.timeout_s:.0f}"
            lines += [
                f"echo VM-BEGIN {step.name}",
                f"{limit} /bin/sh /job/{shlex.quote(step.name)}.sh > /job/{step.name}.log 2>&1 < /dev/null",
                f"echo VM-END {step.name} $?",
            ]
        lines += ["sync", "systemctl poweroff --force --force"]
        (self._job / "agent.sh").write_text("\n".join(lines) + "\n")

    def outcomes(self) -> Iterator[Outcome]:
        """One for each step, as it ends. Errors: `VmError` where the guest does not boot, ends, or is silent."""
        self._wait_for(r"VM-READY", BOOT_S, "boot")
        for step in self._steps:
            started = time.monotonic()
            found = self._wait_for(
                rf"VM-END {re.escape(step.name)} (\d+)", step.timeout_s + END_S, f"step {step.name}"
            )
            output = (self._job / f"{step.name}.log").read_text(errors="replace")
            yield Outcome(step, int(found[1]), output, time.monotonic() - started)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise self._error("switch off", f"not off after {END_S:.0f} s") from None

    def _wait_for(self, pattern: str, timeout_s: float, what: str) -> re.Match[str]:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while True:
            while b"\n" in self._rest:
                line, self._rest = self._rest.split(b"\n", 1)
                text = line.decode(errors="replace").strip()
                self._last.append(text)
                if failed := re.search(r"VM-FAILED (.*)|(Kernel panic.*)", text):
                    raise self._error(what, failed[0])
                if found := re.search(pattern, text):
                    return found
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise self._error(what, f"not done after {timeout_s:.0f} s")
            data = os.read(fd, 1 << 16)
            if not data:
                raise self._error(what, f"the guest has ended (QEMU: {self._process.wait()})")
            self._console.write(data)
            self._console.flush()
            self._rest += data

    def _error(self, what: str, why: str) -> VmError:
        lines = "\n".join(f"    {line}" for line in self._last)
        return VmError(f"guest: {what}: {why}; the last lines of its console:\n{lines}")
