#!/usr/bin/env bash
# The tests of which CI takes a cover, another one each day, as a whole: an hour or more. usage: tests/whole.sh [ctest arguments...]
set -euo pipefail
cd "$(dirname "$0")/.."
MANIPLE_WHOLE=yes tests/run.sh "$@"
tests/golden/run.sh
