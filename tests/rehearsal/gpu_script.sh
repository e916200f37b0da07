#!/usr/bin/env bash
# tests/gpu/run.sh without a GPU, over made-up tools and programs that print what the real ones print: every stage, a failure in each, calls
# that end early, the archive. PROGRAMS: the folder of the real tests, whose names the script's filters must match.
set -uo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/maniple-gpu-script.XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0
bad() { printf 'FAILED: %s\n' "$*" >&2; failures=$((failures + 1)); }

tree=$work/tree tools=$work/tools build=$work/bundle/usr/bin
mkdir -p "$tree/tests/end_to_end" "$tools" "$build"
cp -r "$source/tests/gpu" "$tree/tests/gpu"
made_up() { cat >"$1" && chmod +x "$1"; } # FILE

# A program: FAILS, FAULTS, HANGS, LACKS and SHOUTS are patterns of names with arguments.
made_up "$work/program" <<'PROGRAM'
#!/bin/bash
name="${0##*/} $*"
echo "$name: on gpunode7.example.org, by alice in $PWD and $HOME, hwloc $HWLOC_COMPONENTS"
matches() { [[ -n $1 && $name =~ $1 ]]; }
case $name in
  kernel_bench*) echo '{"kernel": "read_all", "gb_s": 3000, "us": 1}'; echo '{"kernel": "product", "tflop_s": 700, "us": 1}' ;;
  maniple*) echo 'done: 900.0 tok/s' ;;
  *_test*) echo '[  PASSED  ] 3 tests.' ;;
esac
! matches "$SHOUTS" || seq 500000
! matches "$LACKS" || echo 'a_test.cpp:7: Skipped: no GPU: none is visible'
! matches "$FAILS" || { printf 'a_test.cpp:%d: Failure\n' {1..40}; exit 1; }
! matches "$FAULTS" || { echo 'a_test.cpp:7: Failure: cudaErrorIllegalAddress'; exec sleep 50; }
! matches "$HANGS" || exec sleep 50
PROGRAM
for name in maniple kernel_bench {primitives_gpu,cuda_kernels_gpu,kernels,model,engine,parallel_gpu}_test; do ln -s "$work/program" "$build/$name"; done
ln -s "$work/program" "$tree/tests/end_to_end/gpu.sh"
made_up "$work/bundle/run" <<<$'#!/bin/bash\nexec "$@"'
made_up "$tools/mpirun" <<<$'#!/bin/bash\nwhile [ $# -gt 0 ] && [ "$1" != -n ]; do shift; done\nexec "${@:3}"'
made_up "$tools/uname" <<<$'#!/bin/bash\necho gpunode7.example.org'
made_up "$tools/id" <<<$'#!/bin/bash\necho alice'
made_up "$tools/nvidia-smi" <<'SMI'
#!/bin/bash
case "$*" in
  -L) echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)' ;;
  *name,driver*) echo 'NVIDIA H100 80GB HBM3, 570.1' ;;
  *--loop*) while echo '98, 1980, 2619, 412.50, 0x0000000000000004' && sleep 0.05; do :; done ;;
  '-q -x') echo '<nvidia_smi_log><driver_version>570.1</driver_version><gpu><product_name>NVIDIA H100 80GB HBM3</product_name>
    <clocks_event_reasons><clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap></clocks_event_reasons></gpu></nvidia_smi_log>' ;;
esac
SMI
real_python=$(command -v python3)
made_up "$tools/python3" <<PYTHON
#!/bin/bash
case "\$*" in
  *'import torch'*) exit \${NO_TORCH:-0} ;;
  *against_transformers.py*|*peers.py*) exec bash "$work/program" "\$@" ;;
  *) [[ -z "\$FAILS" || "\$*" != *"\$FAILS"* ]] || exit 1; exec "$real_python" "\$@" ;;
esac
PYTHON
ln -s "$work/program" "$tools/compute-sanitizer"
export PATH=$tools:$PATH HOME=/home/alice FAILS='' FAULTS='' HANGS='' LACKS='' SHOUTS=''

# script CODE FOLDER arguments...: runs it there; its exit code is CODE, its output in FOLDER/out, its rows in FOLDER/table.
script() {
  local code=0
  echo "$SECONDS s: run.sh ${*:3}"
  mkdir -p "$work/$2"
  (cd "$work/$2" && bash "$tree/tests/gpu/run.sh" --build "$work/bundle" "${@:3}") >"$work/$2/out" 2>&1 || code=$?
  ((code == $1)) || bad "run.sh ${*:3} ended with $code, not $1: $(cat "$work/$2/out")"
  table=$work/$2/gpu-results/table.md
}
rows() { grep -c "| $1 | $2" "$table"; } # TRY RESULT
has_row() { (($(rows "$1" "$2") == ${3:-1})) || bad "not ${3:-1} rows \"$1: $2\": $(grep "| $1" "$table")"; } # TRY RESULT [TIMES]
says() { grep -q -- "$2" "$work/$1/out" || bad "$1 does not say \"$2\": $(cat "$work/$1/out")"; }

# Everything, in calls that end early: one that has time for the short tries alone, one that cuts a hanging try, and the rest.
script 75 whole --seconds 58
has_row smoke.graphs passed
has_row 'kernels[^ ]*' '' 0
says whole 'left to the next call: kernels.ceilings'
HANGS=ceilings script 75 whole --seconds 5
has_row kernels.ceilings 'cut short'
grep -q '^--- sleep [0-9]' "$work/whole/gpu-results/kernels.ceilings.log" || bad "no stacks: $(cat "$work/whole/gpu-results/kernels.ceilings.log")"
SHOUTS=decode script 0 whole
for try in facts smoke.{primitives,tiles,kernels,text,graphs} kernels.{ceilings,decode,blocks} single.{1,2} engine.{1,2} gates primitives_gpu_test \
  {cuda_kernels_gpu,kernels}_test.{1,2} model_test engine_test.{1,4} parallel_gpu_test.{1,2}_ranks end_to_end.{text,stopped_1} memcheck.tiles synccheck.kernels \
  reference.{fp32,bf16,fp16} peers.{decode,prefill,single,engine}; do has_row "$try" passed; done
has_row parallel_gpu_test.nccl skipped
has_row 'single stream' MISSED 2  # the gates are read again behind the peers
grep -q '| 1980 and 2619 MHz, 412.50 W, limits 0x0*4 | kernels.decode |' "$table" || bad "no load in a row: $(cat "$table")"
before=$(wc -l <"$table")
script 0 whole
(($(wc -l <"$table") == before)) || bad 'what is done was done again'
script 0 whole single
has_row single.1 passed 2

# One archive, small, without names, in $OUT; with it another place goes on.
mkdir "$work/back"
OUT=$work/back script 0 whole
archives=("$work"/back/*)
[[ ${#archives[@]} == 1 && ${archives[0]##*/} =~ ^maniple-gpu-20[0-9-]+-NVIDIA-H100-80GB-HBM3.tar.gz$ ]] || bad "archives: ${archives[*]}"
(($(stat -c %s "${archives[0]}") < 16 << 20)) || bad 'a large archive'
mkdir "$work/moved" && tar -C "$work/moved" -xf "${archives[0]}"
! grep -rniE "gpunode7|alice|$work" "$work/moved" || bad 'names in the archive'
! tar -tvf "${archives[0]}" | grep -v ' 0/0 ' || bad 'an owner in the archive'
(($(stat -c %s "$work/moved/gpu-results/kernels.decode.log") < 1010000)) || bad 'a log was not cut'
"$real_python" - "$work/moved/gpu-results" <<'CHECK' || bad 'facts or measurements'
import json, sys
facts = json.load(open(sys.argv[1] + "/facts.json"))
assert facts["driver"] == "570.1" and facts["gpus"][0]["throttle_reasons"] == ["clocks_event_reason_sw_power_cap"] and facts["gpus"][0]["mig"] is None
rows = [json.loads(line) for line in open(sys.argv[1] + "/measurements.jsonl")]
assert {"try": "kernels.ceilings", "kernel": "product", "tflop_s": 700, "us": 1} in rows
assert any(row["try"] == "engine.1" and row["outcome"] == "passed" and row["watts"] == 412.5 for row in rows)
CHECK
script 0 moved
(($(wc -l <"$table") == $(wc -l <"$work/whole/gpu-results/table.md"))) || bad 'another place did not go on'

# A failure in each stage ends with 1 and twenty lines to report, without names; after one in smoke nothing else runs.
while read -r stage pattern try; do
  FAILS=$pattern script 1 failed "$stage"
  has_row "$try" FAILED
  says failed "report these lines: $try"
  (($(grep -c 'Failure$' "$work/failed/out") <= 18 * $(grep -c -- '--- report' "$work/failed/out"))) || bad "a long report: $(cat "$work/failed/out")"
done <<'STAGES'
facts facts.py facts
smoke cuda_kernels_gpu_test smoke.tiles
kernels kernel_bench kernels.gemm
single maniple single.2
engine maniple engine.1
gates gates.py gates
sanitizers memcheck memcheck.tiles
reference against_transformers reference.fp16
peers peers peers.engine
STAGES
FAILS=cuda_kernels_gpu_test script 1 smoke
has_row smoke.tiles FAILED
has_row smoke.kernels '' 0
FAILS=cuda_kernels_gpu_test script 1 smoke  # and again
has_row smoke.primitives passed
has_row smoke.tiles FAILED 2
! grep -q alice <(sed -n '/--- report/,$p' "$work/smoke/out") || bad 'names in a report'

# An error after which CUDA answers no more ends a program; a test without its GPU has not passed.
FAULTS='model_test|ranks=2' LACKS='engine_test' script 1 faults tests
has_row model_test 'FAILED (1)'
has_row parallel_gpu_test.2_ranks 'FAILED (1)'
has_row engine_test.1 'NO GPU'
has_row parallel_gpu_test.1_ranks passed
FAULTS=primitives script 1 faults smoke
has_row smoke.primitives 'FAILED (1)'

# Without tools stages are skipped; without a network and a bundle, or without a GPU, there is one message.
rm "$tools/compute-sanitizer"
NO_TORCH=1 script 0 bare sanitizers reference peers
has_row memcheck.tiles 'skipped: no compute-sanitizer'
has_row peers.single 'skipped: no torch'
refused() { # WORDS: exit code 69 and this message
  local code=0
  (cd "$work" && timeout 20 bash "$tree/tests/gpu/run.sh") >"$work/out" 2>&1 || code=$?
  ((code == 69)) && grep -q "$1" "$work/out" || bad "$code instead of \"$1\": $(cat "$work/out")"
}
made_up "$tools/apt-get" <<<$'#!/bin/bash\necho http://127.0.0.1:9/debian/'
http_proxy='' https_proxy='' refused 'bring a bundle'
made_up "$tools/nvidia-smi" <<<$'#!/bin/bash\nexit 9'
refused 'no GPU: '

# The filters name tests that there are, and the parts of the programs and the permanent errors are all.
eval "$(grep -E '^(tiles|others)\+?=' "$source/tests/gpu/run.sh")"
sorted() { tr ' |' '\n' | sort | paste -sd' '; }
[ "$(sed -n "s/^sticky='cudaError(\(.*\))'/\1/p" "$source/tests/gpu/run.sh" | sorted)" = \
  "$(sed -n '/ sticky\[\]/,/};/p' "$source/kernels/cuda/device/cuda_check.hpp" | grep -oP 'cudaError\K[A-Z]\w+' | sorted)" ] || bad 'other errors than in cuda_check.hpp'
[ "$(sed -n 's/.*for part in \(.*\); do try "kernels\..*/\1/p' "$source/tests/gpu/run.sh" | sorted)" = \
  "$(grep -oP '\{"\K\w+(?=", bench_)' "$source/tests/gpu/kernel_bench.cpp" | sorted)" ] || bad 'other parts than in kernel_bench.cpp'
parts_in() { sed -n 's/^\(parts=([^)]*)\).*/\1/p' "$1"; }
[ "$(parts_in "$source/tests/gpu/run.sh")" = "$(parts_in "$source/tests/end_to_end/gpu.sh")" ] || bad 'other parts than in end_to_end/gpu.sh'
for pair in "cuda_kernels_gpu_test $tiles" "kernels_test $others"; do
  tr : '\n' <<<"${pair#* }" | while read -r filter; do
    "$PROGRAMS/${pair%% *}" --gtest_list_tests --gtest_filter="$filter" | grep -c '^ ' >/dev/null || echo "$filter"
  done | grep . && bad "no test of ${pair%% *} has this name"
done

((failures == 0)) || { echo "$failures failed" >&2; exit 1; }
echo 'all passed'
