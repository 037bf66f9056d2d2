# Sourced by the scripts in tools/: where the tree is, and which Python it uses.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv=$root/.venv
# Bazel builds the extension modules against this interpreter; the same value everywhere, else Bazel starts over.
export MONARCH_PYTHON=$venv/bin/python

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() {
  say "$*"
  exit 1
}
