#!/usr/bin/env bash
# The unit tests under the address and undefined sanitizers, then groups, supervision and what else has threads under the thread
# sanitizer. usage: tests/sanitizers.sh [--quick] [asan] [tsan]
#   --quick (CI): without the tests that take minutes: kernels, emulated kernels, steps and whole models; builds beside the whole ones
set -euo pipefail
cd "$(dirname "$0")/.."
asan_tests=(parallel_test layers_test scheduling_test control_test checkpoint_test tokenizer_test chat_test run_directory_test convert_test record_test scaling_test analysis_test launch_test supervision_test)
tsan_tests=(parallel_test control_test supervision_test run_directory_test record_test)
quick='' limit=3600
if [ "${1:-}" = --quick ]; then
  quick=-quick limit=900
  export SUM_EPOCHS=${SUM_EPOCHS:-500}
  shift
else
  asan_tests+=(kernels_test emulation_test cuda_kernels_test amx_emulation_test execution_test model_test engine_test)
  tsan_tests+=(checkpoint_test engine_test kernels_test)
fi
presets=("$@")
((${#presets[@]} > 0)) || presets=(asan tsan)

run_test() {  # PRESET TEST
  # The reference backend under a sanitizer takes minutes a grid, and it has no threads. Of the kernels the pool alone has threads.
  local filter='-*SurviveSmallBudgets*reference:*EveryGrid*reference:*/cuda*' output since=$SECONDS
  [ "$1 $2" != "tsan kernels_test" ] || filter='ThreadPool*'
  if output=$(timeout $limit "build/$1$quick/$2" --gtest_brief=1 --gtest_filter="$filter" 2>&1); then
    echo "$1 $2: passed, $((SECONDS - since)) s"
  else
    printf '%s\n%s %s: FAILED after %s s\n' "$output" "$1" "$2" $((SECONDS - since))
    return 1
  fi
}
export quick limit
export -f run_test

for preset in "${presets[@]}"; do
  case $preset in
    asan) tests=("${asan_tests[@]}") ;;
    tsan) tests=("${tsan_tests[@]}") ;;
    *) echo "unknown preset $preset: asan or tsan" >&2 && exit 64 ;;
  esac
  launch/setup.sh "$preset$quick" "${tests[@]}"
  printf '%s\n' "${tests[@]}" | xargs -P "$(nproc)" -I{} bash -c "run_test $preset {}"
done
