"""C++ tests: bazel builds and runs them; test cases are counted from their logs."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
import urllib.parse

from testing.disabled import Disabled
from testing.tally import Tally

_ALL_PASSED = re.compile(r"^All tests passed \(.* in (\d+) test cases?\)$", re.M)
_SOME_FAILED = re.compile(r"^test cases: (\d+)(?: \| (\d+) passed)?(?: \| (\d+) failed)?", re.M)
# A line of dashes, the case, its sections indented, dashes, the place, dots.
_FAILED_CASE = re.compile(r"^-{79}\n(.+)\n(?: .*\n)*-{79}\n.+\n\.{79}$", re.M)

# Never part of a run without hardware or a virtual machine.
_NEVER = ("hardware", "vm", "bench")


def shutdown() -> None:
    subprocess.run(["bazel", "shutdown"], stdin=subprocess.DEVNULL, check=False)


def build(flags: list[str], targets: list[str]) -> Tally:
    """A build that is a check by itself: counts as one test."""
    tally = Tally()
    if _bazel("build", ["--keep_going", *flags], targets) == 0:
        tally.passed = 1
    else:
        tally.fail("bazel build " + " ".join(flags))
    return tally


def test(flags: list[str], targets: list[str], disabled: Disabled, tags: list[str]) -> Tally:
    """`tags`: as in --test_tag_filters."""
    tally = Tally()
    handle, events = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    flags = [
        "--keep_going",
        "--build_tests_only",
        "--test_tag_filters=" + ",".join([*tags, *("-" + tag for tag in _NEVER)]),
        f"--build_event_json_file={events}",
        *flags,
    ]
    if cases := disabled.cases():  # third_party/catch2_main.cc reads it
        flags.append("--test_env=MONARCH_DISABLED_CASES=" + "|".join(cases))
    try:
        status = _bazel("test", flags, [*targets, *("-" + target for target in disabled.targets())])
        _count(pathlib.Path(events), tally)
    finally:
        os.unlink(events)
    no_tests = status == 4
    if status != 0 and not no_tests and not tally.failures:
        tally.fail(f"bazel test ended with {status}")
    return tally


def _bazel(command: str, flags: list[str], targets: list[str]) -> int:
    line = ["bazel", command, *flags, "--", *targets]
    print("$ " + " ".join(line), flush=True)
    return subprocess.run(line, stdin=subprocess.DEVNULL, check=False).returncode


def _count(events: pathlib.Path, tally: Tally) -> None:
    logs: dict[str, list[pathlib.Path]] = {}
    for line in events.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        identity = event.get("id", {})
        if "testResult" in event:
            label = identity["testResult"]["label"]
            for output in event["testResult"].get("testActionOutput", []):
                if output.get("name") == "test.log" and output.get("uri", "").startswith("file://"):
                    path = urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
                    logs.setdefault(label, []).append(pathlib.Path(path))
        elif "testSummary" in event:
            label = identity["testSummary"]["label"]
            good = event["testSummary"]["overallStatus"] in ("PASSED", "FLAKY")
            _count_cases(label, good, logs.get(label, []), tally)
        elif "completed" in event and not event["completed"].get("success"):
            tally.fail(identity["targetCompleted"]["label"] + " (build)")


def _count_cases(label: str, good: bool, logs: list[pathlib.Path], tally: Tally) -> None:
    text = ""
    for log in logs[-1:]:
        with contextlib.suppress(OSError):
            text = log.read_text(encoding="utf-8", errors="replace")
    if good:
        counts = [int(n) for n in _ALL_PASSED.findall(text)]
        tally.passed += sum(counts) if counts else 1
        return
    if found := _SOME_FAILED.search(text):
        tally.passed += int(found[2] or 0)
    names = dict.fromkeys(_FAILED_CASE.findall(text))
    if not names:
        tally.fail(label)
    for name in names:
        tally.fail(f"{label}::{name}")
