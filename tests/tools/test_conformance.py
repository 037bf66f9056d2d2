"""The runner behind ./tools/conformance: what it counts for each tier, and that nothing stays behind."""

import pathlib
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/support"))

from testing import conformance, tiers  # noqa: E402
from testing.tally import Tally  # noqa: E402

VENV = pathlib.Path(sys.prefix)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with one test file; its tier is A, test_p's P, test_x's X."""
    table = tmp_path / "tiers.txt"
    table.write_text("# comment\ntest_one.py A\n  P test_p\n    test_p2\n  X test_x\n")
    monkeypatch.setattr(conformance, "TIERS", table)
    folder = tmp_path / "checkout/python/tests"
    folder.mkdir(parents=True)
    return folder


def run(folder: pathlib.Path, text: str) -> Tally:
    (folder / "test_one.py").write_text(textwrap.dedent(text))
    return conformance.run(VENV, folder, [])


def test_the_list_of_tiers_is_readable():
    files = {file.name: file for file in tiers.read(conformance.TIERS)}
    assert len(files) == 40
    assert files["test_config.py"].tier_of("test_config.py::test_duration_params[5s]") == "P"
    assert {file.tier_of(name) for file in files.values() for name in file.others} <= set("PAEX")


def test_a_checkout_is_told_from_a_folder_of_tests(checkout, tmp_path):
    (checkout / "test_one.py").write_text("")
    assert conformance.tests_folder(tmp_path / "checkout") == checkout
    assert conformance.tests_folder(checkout) == checkout
    assert conformance.tests_folder(tmp_path) is None


def test_counts_by_tier_and_gives_reasons(checkout, capsys):
    tally = run(
        checkout,
        """
        import pytest

        def test_p(): pass
        def test_p2(): pytest.skip("not here")
        async def test_a(): pass
        def test_b(): raise ValueError("the reason")
        def test_x(): assert False
        @pytest.mark.oss_skip
        def test_c(): assert False
        """,
    )
    out = capsys.readouterr().out
    assert tally.closing_line() == "2 passed, 1 failed"
    assert "P     1/0/1\nA     1/1/0\nE     0/0/0\n" in out
    assert "FAILED [A] test_one.py::test_b: ValueError: the reason\n" in out


def test_goes_on_after_a_test_that_ends_the_process(checkout):
    tally = run(
        checkout,
        """
        import os

        def test_a(): pass
        def test_b(): os._exit(3)
        def test_c(): pass
        """,
    )
    assert tally.closing_line() == "2 passed, 1 failed"
    assert tally.failures == ["test_one.py::test_b"]


def test_ends_a_file_whose_time_is_up(checkout, monkeypatch):
    monkeypatch.setattr(conformance, "FILE_TIMEOUT_S", 4)
    text = "import signal\ndef test_a(): pass\ndef test_b(): signal.pause()\ndef test_c(): pass\n"
    tally = run(checkout, text)
    assert tally.passed == 1
    assert tally.failures == ["test_one.py::test_b", "test_one.py::test_c"]


def test_a_file_that_does_not_import_is_a_failure(checkout):
    assert run(checkout, "import no_such_module\n").closing_line() == "0 passed, 1 failed"


def test_a_file_that_only_shows_machinery_is_left_out(checkout):
    conformance.TIERS.write_text("test_one.py X\n  X test_x\n")
    assert run(checkout, "import no_such_module\n").closing_line() == "0 passed, 0 failed"
    conformance.TIERS.write_text("test_one.py X\n  E test_e\n")
    assert run(checkout, "import no_such_module\n").closing_line() == "0 passed, 1 failed"


def test_nothing_that_a_test_started_stays(checkout, tmp_path):
    pid_file = tmp_path / "pid"
    run(
        checkout,
        f"""
        import pathlib, subprocess, sys

        def test_a():
            child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
            pathlib.Path({str(pid_file)!r}).write_text(str(child.pid))
        """,
    )
    # Gone, or at most a zombie that waits for whoever inherited it.
    try:
        state = pathlib.Path(f"/proc/{pid_file.read_text()}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        state = "gone"
    assert state in ("gone", "Z")


def test_the_checkouts_own_package_is_not_found(checkout):
    package = checkout.parent / "only_in_the_checkout"
    package.mkdir()
    (package / "__init__.py").write_text("")
    text = """
        import importlib.util

        def test_a(): assert importlib.util.find_spec("only_in_the_checkout") is None
        """
    assert run(checkout, text).closing_line() == "1 passed, 0 failed"


def test_a_name_that_is_no_file_is_refused(checkout):
    with pytest.raises(SystemExit, match="test_two.py"):
        conformance.run(VENV, checkout, ["test_two.py"])
