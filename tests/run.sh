#!/usr/bin/env bash
# Sets up, builds and passes the tests. usage: tests/run.sh [--sanitizers] [ctest arguments...]
#   --sanitizers: afterwards the unit tests under address and undefined sanitizers, and the tests with threads under the thread sanitizer
set -euo pipefail
cd "$(dirname "$0")/.."
sanitizers=no
if [ "${1:-}" = --sanitizers ]; then sanitizers=yes; shift; fi
unit_tests=(kernels_test emulation_test cuda_kernels_test amx_emulation_test parallel_test layers_test scheduling_test control_test checkpoint_test tokenizer_test
  chat_test execution_test model_test engine_test run_directory_test launch_test)
thread_tests=(parallel_test control_test engine_test kernels_test run_directory_test launch_test)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 MANIPLE_WERROR=ON

launch/setup.sh release
ctest --test-dir build/release --output-on-failure "$@"
[ "$sanitizers" = yes ] || exit 0

launch/setup.sh asan "${unit_tests[@]}"
# The reference backend takes minutes per grid under a sanitizer, and has no threads.
slow='-*SurviveSmallBudgets*reference:*EveryGrid*reference'
for name in "${unit_tests[@]}"; do build/asan/"$name" --gtest_brief=1 --gtest_filter="$slow"; done

launch/setup.sh tsan "${thread_tests[@]}"
for name in "${thread_tests[@]}"; do
  filter=$slow
  [ "$name" != kernels_test ] || filter='ThreadPool*'
  build/tsan/"$name" --gtest_brief=1 --gtest_filter="$filter"
done
