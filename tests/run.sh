#!/usr/bin/env bash
# Sets up, builds and passes the tests. usage: tests/run.sh [--sanitizers] [ctest arguments...]
#   --sanitizers: afterwards the unit tests under address and undefined sanitizers, and the group tests under the thread sanitizer
set -euo pipefail
cd "$(dirname "$0")/.."
sanitizers=no
if [ "${1:-}" = --sanitizers ]; then sanitizers=yes; shift; fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

launch/setup.sh release
ctest --test-dir build/release --output-on-failure "$@"
[ "$sanitizers" = yes ] || exit 0

launch/setup.sh asan
ctest --test-dir build/asan --output-on-failure -L unit "$@"
launch/setup.sh tsan parallel_test kernels_test engine_test
ctest --test-dir build/tsan --output-on-failure -R '^(parallel_test|kernels_threads|engine_threads)' "$@"
