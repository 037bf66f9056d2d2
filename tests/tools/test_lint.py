"""Each rule of ./tools/lint finds what it is for, and leaves alone what is right."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = "#pragma once\n"
TASK = "TO" + "DO"


def lint(root: pathlib.Path, *files: str) -> list[str]:
    """`file:line: rule` of each finding; formatting is left to its own test."""
    done = subprocess.run(
        [ROOT / "tools/lint", "--root", root, *files], capture_output=True, text=True, check=False
    )
    found = [line.rsplit(": ", 1)[0] if line.count(": ") == 2 else line for line in done.stdout.splitlines()]
    assert done.returncode == (1 if found else 0), done.stderr
    return [":".join(line.split(":")[:3]) for line in done.stdout.splitlines() if ": format:" not in line]


def write(root: pathlib.Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


BAD = [
    ("base/x.cc", "int x;\n" * 501, "501: file-size"),
    ("base/x.h", HEADER + "int x();\n" * 200, "201: header-size"),
    ("base/x.h", "int x();\n", "1: pragma-once"),
    ("daemon/x.cc", "auto t = std::chrono::steady_clock::now();\n", "1: clock"),
    ("daemon/x.cc", "\nauto t = absl::Now();\n", "2: clock"),
    ("daemon/x.cc", "int r = waitpid(-1, nullptr, 0);\n", "1: wait-any"),
    ("base/x_test.cc", "std::this_thread::sleep_for(s);\n", "1: sleep-in-test"),
    ("tests/python/test_x.py", "import time\ntime.sleep(1)\n", "2: sleep-in-test"),
    ("base/x.cc", f"// {TASK}: later\n", "1: todo"),
    ("base/x.cc", f"// {TASK}(perf): later\n", "1: todo"),
    ("base/x.cc", "// FIX" + "ME\n", "1: todo"),
    ("base/x.cc", '#include "x.h"\n', "1: include-path"),
    ("base/x.cc", '#include "../base/x.h"\n', "1: include-path"),
    ("base/x.h", HEADER + "class X {\n};\n", "2: threading"),
    ("base/x.h", HEADER + "// An x.\ntemplate <class T>\nclass X : public Y {\n};\n", "4: threading"),
    ("docs/x.md", "see /ho" + "me/someone/tree\n", "1: machine-path"),
    ("base/BUILD.bazel", 'cc_library(name = "x")\n', "1: native-rule"),
    ("client/cpp/monarch/x.h", HEADER + "#include <grpcpp/grpcpp.h>\n", "2: public-header"),
    ("client/cpp/monarch/x.h", HEADER + '#include "proto/monarch/v1/admin.pb.h"\n', "2: public-header"),
    ("docs/x.md", "text \n", "1: trailing-space"),
]


@pytest.mark.parametrize(("name", "text", "expected"), BAD)
def test_finds_what_breaks_a_rule(tmp_path, name, text, expected):
    write(tmp_path, name, text)
    assert lint(tmp_path, name) == [f"{name}:{expected}"]


GOOD = [
    ("base/x.h", HEADER + "// An x. Threading: immutable.\nclass X {\n};\nclass Forward;\n"),
    ("base/clock.cc", "auto t = std::chrono::steady_clock::now();\n"),
    ("daemon/x.cc", f"// {TASK}(perf, #12): later\nint r = waitpid(pid, nullptr, 0);\n"),
    ("daemon/x.cc", "// not absl::Now()\n"),
    ("base/x_test.cc", "// sleep_for would be wrong\n"),
    ("third_party/BUILD.bazel", 'cc_library(name = "x")\n'),
    ("client/cpp/monarch/x.h", HEADER + '#include "client/cpp/monarch/y.h"\n'),
]


@pytest.mark.parametrize(("name", "text"), GOOD)
def test_leaves_alone_what_is_right(tmp_path, name, text):
    write(tmp_path, name, text)
    assert lint(tmp_path, name) == []


def test_asks_each_module_for_a_readme(tmp_path):
    write(tmp_path, "base/x.cc", "int x;\n")
    assert lint(tmp_path) == ["base/README.md:1: readme"]
    write(tmp_path, "base/README.md", "# base\n")
    assert lint(tmp_path) == []


def test_ratchet_allows_what_is_known_and_no_more(tmp_path):
    write(tmp_path, "base/README.md", "# base\n")
    write(tmp_path, "base/x.cc", f"// {TASK}\n")
    write(tmp_path, "tools/README.md", "# tools\n")
    write(tmp_path, "tools/support/lint/ratchet.txt", "# why\ntodo base/x.cc 1\n")
    assert lint(tmp_path) == []
    write(tmp_path, "base/x.cc", f"// {TASK}\n// {TASK}\n")
    assert lint(tmp_path) == ["base/x.cc:1: todo", "base/x.cc:2: todo"]


def test_a_limit_is_read_by_code_and_told_of(tmp_path):
    write(tmp_path, "base/README.md", "# base\n")
    write(
        tmp_path,
        "base/limits.h",
        HEADER
        + "struct Limits {\n  int64_t used_max = 1;\n  int64_t idle_ms = 2;\n  int64_t told_ms = 3;\n};\n",
    )
    write(tmp_path, "docs/limits.md", "| `used_max` | 1 |\n| `told_ms` | 3 |\n")
    write(tmp_path, "base/limits.cc", "int64_t x = limits.idle_ms;\n")
    write(tmp_path, "base/y_test.cc", "int64_t x = limits.told_ms;\n")
    write(tmp_path, "base/x.cc", "int64_t x = limits_.used_max;  // limits.told_ms\n")
    findings = [finding for finding in lint(tmp_path) if finding.endswith(": limit")]
    assert findings == ["base/limits.h:4: limit"] * 2 + ["base/limits.h:5: limit"]
    write(tmp_path, "docs/limits.md", "| `used_max` | 1 |\n| `told_ms` | 3 |\n| `idle_ms` | 2 |\n")
    write(
        tmp_path,
        "base/x.cc",
        "int64_t x = limits_.used_max;\nint64_t y = Limits().idle_ms + limits->told_ms;\n",
    )
    assert [finding for finding in lint(tmp_path) if finding.endswith(": limit")] == []
