"""The guest of ./tools/test vm, with a program in QEMU's place: what is said when it does not do what it should."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/vm"), str(ROOT / "tools/support")]

from machine import guest as machine  # noqa: E402
from machine import initramfs  # noqa: E402
from machine.errors import VmError  # noqa: E402
from machine.guest import Guest, Outcome, Step  # noqa: E402
from testing import vm  # noqa: E402
from testing.disabled import Disabled  # noqa: E402

STEPS = [Step("one", "true", 1), Step("two", "true", 1)]
VENV = pathlib.Path(sys.prefix)
JOB = 'job=$(echo "$@" | sed "s/.*id=job,path=\\([^,]*\\),.*/\\1/")\n'


@pytest.fixture
def qemu(tmp_path, monkeypatch):
    """Writes the program."""

    def write(script: str) -> None:
        program = tmp_path / "qemu-system-x86_64"
        program.write_text("#!/bin/sh\n" + JOB + script)
        program.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(initramfs, "kernel", lambda: (pathlib.Path("/boot/vmlinuz"), "6.1"))
    monkeypatch.setattr(initramfs, "build", lambda target, release: None)
    monkeypatch.setattr(vm, "_copies", lambda venv, root: {})
    return write


def outcomes(folder: pathlib.Path) -> list[Outcome]:
    with Guest(folder / "job", STEPS) as guest:
        return list(guest.outcomes())


def test_each_step_has_an_outcome(qemu, tmp_path):
    qemu(
        "echo first > $job/one.log; echo second > $job/two.log\n"
        "echo VM-READY; echo VM-BEGIN one; echo VM-END one 0; echo VM-END two 7\n"
    )
    found = outcomes(tmp_path)
    assert [(o.step.name, o.status, o.output) for o in found] == [
        ("one", 0, "first\n"),
        ("two", 7, "second\n"),
    ]
    assert "VM-END two 7" in (tmp_path / "job/console.log").read_text()


def test_a_guest_that_does_not_boot_is_told_with_its_console(qemu, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "BOOT_S", 0.3)
    qemu("echo Loading; exec sleep 60\n")
    with pytest.raises(
        VmError, match=r"guest: boot: not done after 0 s; the last lines of its console:\n    Loading"
    ):
        outcomes(tmp_path)


@pytest.mark.parametrize("line", ["Kernel panic - not syncing: no init", "VM-FAILED mount the host's root"])
def test_a_failed_boot_is_told_at_once(qemu, tmp_path, line):
    qemu(f'echo "[ 1.0] {line}"; exec sleep 60\n')
    with pytest.raises(VmError, match=f"guest: boot: {line}"):
        outcomes(tmp_path)


def test_a_guest_that_ends_early_is_told(qemu, tmp_path):
    qemu("echo > $job/one.log; echo VM-READY; echo VM-END one 0; exit 3\n")
    with pytest.raises(VmError, match=r"guest: step two: the guest has ended \(QEMU: 3\)"):
        outcomes(tmp_path)


def test_a_guest_that_goes_silent_is_told(qemu, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "END_S", 0.3)
    qemu("echo VM-READY; exec sleep 60\n")
    with pytest.raises(VmError, match="guest: step one: not done after 1 s"):
        outcomes(tmp_path)


def tree(folder: pathlib.Path) -> pathlib.Path:
    for name in ("both/test_x.py", "root/test_y.py"):
        file = folder / "tests/vm" / name
        file.parent.mkdir(parents=True)
        file.write_text("")
    setup = folder / "tools/setup"
    setup.parent.mkdir()
    setup.write_text("#!/bin/sh\n")
    setup.chmod(0o755)
    return folder


REPORT = (
    '<testsuite><testcase name="test_a"/><testcase name="test_b"><failure/></testcase>'
    '<testcase name="test_c"><skipped/></testcase></testsuite>'
)


def test_the_guests_tests_are_counted_singly(qemu, tmp_path, monkeypatch):
    names = ["test_y-root", "test_x-root", "test_x-tester"]
    script = "echo VM-READY\n" + "".join(
        f"echo > $job/{n}.log; echo '{REPORT}' > $job/{n}.xml; echo VM-END {n} 1\n" for n in names
    )
    qemu(script)
    tally = vm.run(VENV, tree(tmp_path), False, Disabled([]))
    assert tally.closing_line() == "3 passed, 3 failed"
    assert tally.failures == [
        "tests/vm/root/test_y.py as root::test_b",
        "tests/vm/both/test_x.py as root::test_b",
        "tests/vm/both/test_x.py as tester::test_b",
    ]


def test_what_no_guest_has_run_has_failed(qemu, tmp_path):
    qemu(
        f"echo VM-READY; echo > $job/test_y-root.log; echo '{REPORT}' > $job/test_y-root.xml; echo VM-END test_y-root 1\n"
    )
    tally = vm.run(VENV, tree(tmp_path), False, Disabled([]))
    assert tally.passed == 1
    assert [name.split(" (")[0] for name in tally.failures] == [
        "tests/vm/root/test_y.py as root::test_b",
        "tests/vm/both/test_x.py as root",
        "tests/vm/both/test_x.py as tester",
    ]


def test_a_file_without_a_report_has_failed(qemu, tmp_path):
    names = ["test_y-root", "test_x-root", "test_x-tester"]
    qemu("echo VM-READY\n" + "".join(f"echo > $job/{n}.log; echo VM-END {n} 124\n" for n in names))
    tally = vm.run(VENV, tree(tmp_path), False, Disabled(["tests/vm/both/test_x.py"]))
    assert tally.failures == ["tests/vm/root/test_y.py as root (ended with 124)"]
