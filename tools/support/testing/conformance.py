"""Runs the test files of a checkout that stands outside the tree, two at a time, and counts them by tier."""

import collections
import concurrent.futures
import dataclasses
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid

from testing import command, python, tiers
from testing.tally import Tally

FILE_TIMEOUT_S = 600
TEST_TIMEOUT_S = 60
AT_ONCE = 2
TIERS = pathlib.Path(__file__).with_name("conformance_tiers.txt")

_OUTCOME = re.compile(
    r"^(?P<id>\S+\.py::.*?) (?P<outcome>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b.*$", re.M
)
_STARTED = re.compile(r"^(?P<id>\S+\.py::[^\n]*?) ?$", re.M)
_REASON = re.compile(r"^(?:FAILED|ERROR) (?P<id>\S+\.py::.*?) - (?P<reason>.*)$", re.M)
_GOOD = {"PASSED": "passed", "XPASS": "passed", "SKIPPED": "skipped", "XFAIL": "skipped"}


def tests_folder(path: pathlib.Path) -> pathlib.Path | None:
    """The folder of the tests, if `path` is a checkout that the tiers are about (its root, or that folder)."""
    known = tiers.read(TIERS)
    for folder in (path / "python/tests", path):
        if sum((folder / file.name).is_file() for file in known) > len(known) / 2:
            return folder
    return None


@dataclasses.dataclass
class Result:
    """What became of the tests of one file."""

    file: tiers.File
    outcomes: dict[str, str] = dataclasses.field(default_factory=dict)  # node id: passed, failed or skipped
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0

    def fail(self, test: str, reason: str) -> None:
        self.outcomes[test] = "failed"
        self.reasons[test] = reason

    def counts(self, tier: str) -> collections.Counter[str]:
        return collections.Counter(o for test, o in self.outcomes.items() if self.tier_of(test) == tier)

    def tier_of(self, test: str) -> str:
        """A file that did not import counts for a tier that some of its tests belong to."""
        tier = self.file.tier_of(test)
        return (
            tier
            if tier in tiers.COUNTED
            else next(t for t in self.file.others.values() if t in tiers.COUNTED)
        )

    def line(self) -> str:
        parts = []
        for tier in tiers.COUNTED:
            count = self.counts(tier)
            if count.total():
                parts.append(f"{tier} {count['passed']}/{count['failed']}/{count['skipped']}")
        return f"{self.file.name:45} {'  '.join(parts) or '-':30} {self.seconds:5.0f} s"


class Run:
    """A copy of the tests, and where their processes put things; gone after `close()`."""

    def __init__(self, venv: pathlib.Path, folder: pathlib.Path) -> None:
        self._python = venv / "bin/python"
        self._mark = f"MONARCH_CONFORMANCE_RUN={uuid.uuid4().hex}"
        self._top = pathlib.Path(tempfile.mkdtemp(prefix="mc-"))
        self._tests = self._top / "python/tests"
        # Without what stands beside it: the checkout's own package must not be found.
        shutil.copytree(folder, self._tests, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        (self._top / "tmp").mkdir()
        (self._top / "pytest.ini").write_text(
            f"[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
            f"timeout = {TEST_TIMEOUT_S}\nmarkers =\n    oss_skip: left out\n"
        )
        self._env = python.environment(venv) | {"COLUMNS": "400", "TMPDIR": str(self._top / "tmp")}
        self._env |= dict([self._mark.split("=", 1)])

    def close(self) -> None:
        command.end_marked(self._mark)
        shutil.rmtree(self._top, ignore_errors=True)

    def _pytest(self, log: pathlib.Path, seconds: float, mark: str, *args: str) -> tuple[int, str]:
        line = [str(self._python), "-m", "pytest", "-p", "no:cacheprovider", "--color=no"]
        line += [f"--rootdir={self._tests}", f"--config-file={self._top}/pytest.ini", "-m", "not oss_skip"]
        env = self._env | dict([mark.split("=", 1)])
        with log.open("w") as out:
            process = subprocess.Popen(
                [*line, *args],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self._tests,
                env=env,
                start_new_session=True,
            )
            try:
                status = process.wait(max(1.0, seconds))
            except subprocess.TimeoutExpired:
                status = 124
            finally:
                command.end_group(process)
                command.end_marked(mark)
        return status, log.read_text(encoding="utf-8", errors="replace")

    def file(self, file: tiers.File) -> Result:
        """All its counted tests; what a crash left over runs in the next process."""
        started = time.monotonic()
        result = Result(file)
        log = self._top / (file.name.replace("/", "-") + ".log")
        mark = f"MONARCH_CONFORMANCE_FILE={uuid.uuid4().hex}"
        status, text = self._pytest(log, 120, mark, "-q", "--collect-only", file.name)
        if status not in (0, 5):
            result.fail(f"{file.name}::*", "not collected: " + _last_error(text))
        left = [line for line in text.splitlines() if line.startswith(f"{file.name}::")]
        left = [test for test in left if file.tier_of(test) in tiers.COUNTED]
        while left:
            rest = FILE_TIMEOUT_S - (time.monotonic() - started)
            if rest <= 0:
                for test in left:
                    result.fail(test, f"not run: {FILE_TIMEOUT_S} s were over")
                break
            status, text = self._pytest(log, rest, mark, "-v", "--tb=short", "-rfE", *left)
            _read(text, result, left)
            now = [test for test in left if test not in result.outcomes]
            if now:
                started_tests = [found["id"] for found in _STARTED.finditer(text) if found["id"] in now]
                culprit = started_tests[-1] if started_tests else now[0]
                result.fail(culprit, f"the process ended with {status}: {_last_error(text)}")
                now.remove(culprit)
            left = now
        result.seconds = time.monotonic() - started
        return result


def _read(text: str, result: Result, asked: list[str]) -> None:
    for found in _OUTCOME.finditer(text):
        if found["id"] in asked and result.outcomes.get(found["id"]) != "failed":
            result.outcomes[found["id"]] = _GOOD.get(found["outcome"], "failed")
    for found in _REASON.finditer(text):
        result.reasons.setdefault(found["id"], found["reason"])


def _last_error(text: str) -> str:
    """The line that says most about a process that did not come to its end."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(E  |[\w.]*(Error|Exception|Interrupt)\b)", line)]
    return (errors or lines or ["no output"])[-1].removeprefix("E").strip()


def run(venv: pathlib.Path, folder: pathlib.Path, names: list[str]) -> Tally:
    known = tiers.read(TIERS)
    wanted = [file for file in known if file.is_counted() and (not names or file.name in names)]
    if unknown := set(names) - {file.name for file in wanted}:
        raise SystemExit(f"conformance: no such file among the tiers: {', '.join(sorted(unknown))}")
    started = time.monotonic()
    results = []
    run_ = Run(venv, folder)
    try:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                running = [pool.submit(run_.file, file) for file in wanted if (folder / file.name).is_file()]
                for done in concurrent.futures.as_completed(running):
                    results.append(done.result())
                    print(results[-1].line(), flush=True)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                run_.close()  # what runs ends with it
                raise
    finally:
        run_.close()
    return _report(results, time.monotonic() - started)


def _report(results: list[Result], seconds: float) -> Tally:
    tally = Tally()
    results.sort(key=lambda result: result.file.name)
    print()
    for result in results:
        for test, outcome in result.outcomes.items():
            if outcome == "failed":
                reason = " ".join(result.reasons.get(test, "no reason found").split())
                print(f"FAILED [{result.tier_of(test)}] {test}: {reason[:200]}")
                tally.fail(test)
    print("\ntier  passed/failed/skipped")
    for tier in tiers.COUNTED:
        count: collections.Counter[str] = collections.Counter()
        for result in results:
            count += result.counts(tier)
        tally.passed += count["passed"]
        print(f"{tier:5} {count['passed']}/{count['failed']}/{count['skipped']}")
    print(f"{seconds:.0f} s")
    sys.stdout.flush()
    return tally
