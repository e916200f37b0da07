#!/usr/bin/env bash
# All that needs a GPU, in stages, and one archive of the results.
#   tests/gpu/run.sh [--build FOLDER] [--seconds N] [STAGE...]
#   stages, in this order: facts smoke kernels single engine gates tests sanitizers reference peers
# FOLDER: a build or an unpacked bundle (launch/bundle.sh --gpu). Without it build/release is made for this machine's GPU.
# A call does what is not done yet, for N seconds at most; stages that are named are done again. What is done stands in gpu-results/ of
# the current folder: to go on in another place, unpack the archive there first. It is $OUT/maniple-gpu-DATE-GPU.tar.gz (else in
# the current folder), and holds no names of host or user. A failure in `smoke` ends each call that does not name other stages.
# Exit code: 0 all done, 1 something failed, 69 no GPU or no program, 75 the rest is left to the next call.
set -uo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
all=(facts smoke kernels single engine gates tests sanitizers reference peers)
build='' budget=''
while [[ ${1:-} == --* ]]; do
  case $1 in
    --build) build=$(cd "${2:-}" && pwd) || exit 64 ;;
    --seconds) budget=${2:-} ;;
    *) echo "unknown option $1: --build FOLDER or --seconds N" >&2; exit 64 ;;
  esac
  shift 2
done
[[ $budget =~ ^[0-9]*$ ]] || { echo "--seconds takes a number, not $budget" >&2; exit 64; }
for stage in "$@"; do
  [[ " ${all[*]} " == *" $stage "* ]] || { echo "unknown stage $stage: one of ${all[*]}" >&2; exit 64; }
done
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')  # grep -q would end nvidia-smi early, with an error
if ((gpus == 0)); then
  echo "no GPU: nvidia-smi lists none; run this on a GPU node" >&2
  exit 69
fi

# Whether the server of this machine's packages answers. Behind a proxy only apt knows.
packages_come() {
  local server
  [ -z "${http_proxy:-}${https_proxy:-}" ] || return 0
  # shellcheck disable=SC2016
  server=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | sed -nE 's,^http://([^/]+).*,\1:80,p' | sed -nE '1s,^([^:]+):([0-9]+).*,/dev/tcp/\1/\2,p')
  [ -n "$server" ] && timeout 5 bash -c ": <$server" 2>/dev/null
}
if [ -z "$build" ]; then
  if ! [ -e "$here/build/release/CMakeCache.txt" ] && ! packages_come; then
    echo "no program, and no packages to build one: bring a bundle (launch/bundle.sh --gpu on a machine with nvcc), unpack it, and add --build FOLDER" >&2
    exit 69
  fi
  CUDAARCHS=native "$here/launch/setup.sh" release || exit
  build=$here/build/release
elif [ -x "$build/run" ]; then  # a bundle: its `run` finds the libraries
  exec "$build/run" bash "$here/tests/gpu/run.sh" --build "$build/usr/bin" ${budget:+--seconds "$budget"} "$@"
fi

[ -x "$build/kernel_bench" ] || { echo "no kernel_bench in $build: it was built without CUDA" >&2; exit 69; }

export MANIPLE_TEST_DATA=$here/tests/data OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export HWLOC_COMPONENTS=-gl  # it asks a display for GPUs, and mpirun waits
export GTEST_COLOR=no
export MANIPLE=$build/maniple DATA=$MANIPLE_TEST_DATA HERE=$here/tests/end_to_end
export MPIRUN="mpirun --oversubscribe --allow-run-as-root --bind-to none --mca btl self,vader --mca mpi_yield_when_idle 1"
results=$PWD/gpu-results
mkdir -p "$results" || exit
table=$results/table.md
gpu=${CUDA_VISIBLE_DEVICES:-0} gpu=${gpu%%,*}
[[ $gpu =~ ^([0-9]+|GPU-.*)$ ]] || gpu=0  # a part of a GPU has no clocks of its own
device=$(nvidia-smi --id="$gpu" --query-gpu=name,driver_version --format=csv,noheader | head -1)
reasons=clocks_event_reasons.active
nvidia-smi --query-gpu=$reasons --format=csv >/dev/null 2>&1 || reasons=clocks_throttle_reasons.active  # its name before driver 535
[ -s "$table" ] || printf '| date | device, driver | under load | try | result | command |\n|---|---|---|---|---|---|\n' >"$table"

# --- what leaves this machine holds none of its names ---
names=$(mktemp)
replace() { printf 's|%s%s%s|%s|g\n' "$1" "$(printf %s "$2" | sed 's/[][\.*^$|]/\\&/g')" "$1" "$3"; }
{ for path in "$build" "$here" "$PWD" "${HOME%/}"; do [ -z "$path" ] || replace '' "$path" '~'; done
  for host in "$(uname -n)" "$(uname -n | cut -d. -f1)"; do replace '\b' "$host" HOST; done
  [ "$(id -un)" = root ] || replace '\b' "$(id -un)" USER; } >"$names"
scrub() { sed -f "$names"; }

# --- one try ---
failed='' tried='' ran='' left=()
stop_at=''  # a pattern of the output after which a program is ended
# The errors after which CUDA answers no more: is_sticky of cuda_check.hpp.
sticky='cudaError(IllegalAddress|IllegalInstruction|MisalignedAddress|InvalidAddressSpace|InvalidPc|HardwareStackError|LaunchFailure|LaunchTimeout|Assert|ECCUncorrectable)'
# shellcheck disable=SC2016
row() { # TRY RESULT [COMMAND [LOAD]]
  printf '| %s | %s | %s | %s | %s | `%s` |\n' "$(date -u +%FT%TZ)" "$device" "${4:-}" "$1" "$2" "${3:-}" | tee -a "$table"
}
is_done() { grep -qsxF "$stage $1" "$results/done"; }
skip() { is_done "$1" || { row "$1" "skipped: $2"; echo "$stage $1" >>"$results/done"; }; }

session() { # LEADER: the processes of its session
  local file stat fields
  for file in /proc/[0-9]*/stat; do
    { read -r stat <"$file"; } 2>/dev/null || continue
    read -ra fields <<<"${stat##*) }"
    [ "${fields[3]}" != "$1" ] || echo "${stat%% *}"
  done
}
stacks() { # LEADER: where its programs are, as far as ten seconds tell
  local pid command tool until=$((SECONDS + 10))
  for pid in $(session "$1"); do
    ((SECONDS < until)) || break
    command=$(cat "/proc/$pid/comm" 2>/dev/null)
    case $command in
      mpirun|orterun|bash|env|'') continue ;;
      python*) tool=(py-spy dump --pid "$pid") ;;
      *) tool=(gdb -p "$pid" -batch -nx -ex 'thread apply all bt 16') ;;
    esac
    echo "--- $command $pid"
    ! command -v "${tool[0]}" >/dev/null || timeout -k 1 8 "${tool[@]}" 2>/dev/null | grep -E '^(#|Thread| )'
    grep -h ^State "/proc/$pid/task/"*/status 2>/dev/null | sort | uniq -c
  done
}
end_session() {
  local pid
  [ -n "${leader:-}" ] || return 0
  kill -TERM "$leader" 2>/dev/null && sleep 1  # mpirun ends its ranks
  for pid in $(session "$leader"); do kill -KILL "$pid" 2>/dev/null; done
  leader=''
}
limited() { # SECONDS LOG command...: its exit code, or 124 after this time
  local limit=$1 log=$2 end code
  shift 2
  end=$((SECONDS + limit))
  : >"$log"
  setsid "$@" >"$log" 2>&1 </dev/null &
  leader=$!
  while kill -0 "$leader" 2>/dev/null; do
    if [ -n "$stop_at" ] && grep -qE "$stop_at" "$log"; then
      sleep 1
      end_session
      echo "ended: after such an error each call of CUDA fails" >>"$log"
      return 1
    elif ((SECONDS >= end)); then
      { echo "not ended after $limit s"; stacks "$leader"; } >>"$log" 2>&1
      end_session
      return 124
    fi
    sleep 0.1
  done
  wait "$leader"
  code=$?
  end_session  # what it left behind
  return $code
}

# Clocks, power and reasons for lower clocks, once a second; $load and $load_json hold the medians of the seconds in which the GPU worked.
sample() { nvidia-smi --id="$gpu" --query-gpu=utilization.gpu,clocks.sm,clocks.mem,power.draw,$reasons --format=csv,noheader,nounits --loop=1 >"$1" 2>/dev/null & sampler=$!; }
median() { awk -F', *' -v column="$2" '$1 > 0 && $column ~ /^[0-9.]+$/ { print $column }' "$1" | sort -n | awk '{ at[NR] = $1 } END { print NR ? at[int((NR + 1) / 2)] : "null" }'; }
read_load() { # SAMPLES
  local sm memory watts why
  sm=$(median "$1" 2) memory=$(median "$1" 3) watts=$(median "$1" 4)
  why=$(awk -F', *' '$1 > 0 { print $5 }' "$1" | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }')
  load="$sm and $memory MHz, $watts W, limits ${why:-unknown}"
  [ "$sm" != null ] || load='no load seen'
  load_json=$(printf '"sm_mhz": %s, "memory_mhz": %s, "watts": %s, "limits": "%s"' "$sm" "$memory" "$watts" "$why")
}

report() { # TRY COMMAND: the twenty lines to send
  { echo "--- report these lines: $1, $device, commit $("$MANIPLE" --version 2>&1 | sed -n "s/^commit: *//p")"; echo "$2"
    awk '!from && /FAILED|Failure|error:|exception|not ended/ { from = NR } { line[NR] = $0 }
      END { if (!from) from = NR > 18 ? NR - 17 : 1; for (i = from; i <= NR; ++i) print line[i] }' "$results/$1.log"; } | cut -c1-200 | head -20 | scrub >&2
}

# try NAME SECONDS COMMAND...: a row with the outcome, and the last line of the output that matches $summary. It begins only where the budget has the
# time for it; the first one of a call always does.
summary=.
try() {
  local name=$1 limit=$2 log=$results/$1.log outcome=passed code=0 whole=yes rest started=$SECONDS line
  shift 2
  ran=''
  is_done "$name" && return
  rest=$((${budget:-1000000} - SECONDS - 20))  # stacks and archive take a moment
  if [ ${#left[@]} -gt 0 ] || { [ -n "$tried" ] && ((rest < limit)); }; then left+=("$name") && return; fi
  ((rest >= limit)) || { limit=$((rest > 0 ? rest : 1)) whole=''; }
  tried=yes ran=yes
  sample "$results/samples"
  limited "$limit" "$log" "$@" || code=$?
  kill -KILL "$sampler" 2>/dev/null  # it may be so young that it still has this script's traps
  wait "$sampler" 2>/dev/null
  read_load "$results/samples"
  line=$(grep -aE "$summary" "$log" | tail -n 1 | scrub | cut -c1-160 | tr '|' '/')
  if ((code == 124)) && [ -z "$whole" ]; then
    outcome="cut short after $limit s" left+=("$name")
  elif grep -q 'no GPU: ' "$log"; then outcome='NO GPU' failed=yes
  elif ((code == 77)); then outcome=skipped
  elif ((code != 0)); then outcome="FAILED ($code)" failed=yes
  fi
  row "$name" "$outcome: $line" "$(basename "$1") ${*:2}" "$load"
  { printf '{"try": "%s", "outcome": "%s", "seconds": %d, %s}\n' "$name" "$outcome" $((SECONDS - started)) "$load_json"
    sed -n "s/^{/{\"try\": \"$name\", /p" "$log"; } >>"$results/measurements.jsonl"
  case $outcome in FAILED*) report "$name" "$(basename "$1") ${*:2}" ;; esac
  [ -z "$failed" ] || [ "$stage" != smoke ] || exit 1
  [[ " ${left[*]} " == *" $name "* ]] || echo "$stage $name" >>"$results/done"
}

# --- what the stages run ---
model_folder() { # FOLDER: Qwen3-0.6B's shape, weights are random
  mkdir -p "$1"
  cat >"$1/config.json" <<'JSON'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
 "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-06,
 "rope_theta": 1000000, "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": true, "torch_dtype": "bfloat16"}
JSON
}
needs() { # TOOL TRY SECONDS COMMAND...
  if is_done "$2" || has "$1"; then try "${@:2}"; else skip "$2" "no $1"; fi
}
torch=''
has() { # TOOL
  [ ${#left[@]} -eq 0 ] || return 0  # it is left to the next call anyway
  [ "$1" = torch ] || { command -v "$1" >/dev/null; return; }
  [ -n "$torch" ] || { python3 -c 'import torch, transformers' 2>/dev/null && torch=yes || torch=no; }
  [ $torch = yes ]
}
single_request() { echo "{\"id\": 0, \"tokens\": [$(seq -s, 0 127)], \"max_tokens\": 512, \"temperature\": 0, \"ignore_eos\": true}"; }
nano_vllm_requests() { python3 -B "$here/tests/gpu/nano_vllm_requests.py"; }
serve() { # TOOL: what $results/STAGE.jsonl asks for, twice; the row holds the program's own summary
  local summary='tok/s'
  for run in 1 2; do
    needs "$1" "$stage.$run" 60 "$MANIPLE" generate --backend cuda --model "$results/qwen3-0.6b" --load random --max-model-len 4096 \
      --max-num-batched-tokens 16384 --in "$results/$stage.jsonl" --out "$results/$stage.$run.out" --overwrite
  done
}
gates() { # TRY
  ran=''
  needs python3 "$1" 30 python3 -B "$here/tests/gpu/gates.py" "$results" "$results/qwen3-0.6b"
  [ -z "$ran" ] || while IFS='|' read -r gate result; do row "${gate% }" "${result# }" gates.py; done <"$results/$1.log"
}
gtest() { # SHARDS SECONDS PROGRAM arguments...: the tests in parts
  local stop_at=$sticky shard name summary='PASSED|FAILED TEST'
  for ((shard = 0; shard < $1; shard++)); do
    (($1 == 1)) && name=$3 || name=$3.$((shard + 1))
    try "$name" "$2" env GTEST_TOTAL_SHARDS="$1" GTEST_SHARD_INDEX=$shard "$build/$3" "${@:4}"
  done
}
over_ranks() { # NAME RANKS [VARIABLE=VALUE] [option]
  local stop_at=$sticky option=() setting=() summary='PASSED|FAILED TEST'
  for each in "${@:3}"; do case $each in --*) option=("$each") ;; *) setting=("$each") ;; esac; done
  # shellcheck disable=SC2086
  try "parallel_gpu_test.$1" 60 env "${setting[@]}" $MPIRUN -n "$2" "$build/parallel_gpu_test" --ranks="$2" "${option[@]}"
}
sanitize() { # TOOL.NAME PROGRAM FILTER
  needs compute-sanitizer "$1" 60 compute-sanitizer --tool "${1%.*}" --error-exitcode 1 "$build/$2" --gtest_filter="$3"
}
nccl_shares_gpus() { ((gpus > 1)) || python3 -c 'import json, sys; sys.exit((json.load(open(sys.argv[1]))["nccl"] or 0) < 23000)' "$results/facts.json" 2>/dev/null; }

# One small case a kernel: of those that tests/emulation runs too, and of the others.
tiles='Orders/AttentionDecode.LeavesPadding*/0:Orders/AttentionPrefill.LeavesPadding*/0:Orders/SkinnyGemm.TheFirstHalf*/0:Orders/DequantGemm.ARow*/0'
others='Every/DeviceMemory.AWeightIs*/cuda:Every/Elementwise.AddRmsNorm*/cuda:Every/Elementwise.GatesOf*/cuda:Every/Rotary.Makes*/cuda'
others+=':Every/Codes.MaximaOf*/cuda:Every/Experts.AreNotChosenBy*/cuda:Every/Experts.OfNaN*/cuda:Every/Fp8Cache.RotaryStore*/cuda:Every/Matmul.ARow*/cuda'
others+=':Every/Sampling.OddLogits*/cuda:Every/Sampling.PaddingOf*/cuda:Every/Seats.*/cuda'
parts=(text graphs nccl_graphs layouts stages experts codes context killed_0 killed_1 stopped_0 stopped_1)  # of end_to_end/gpu.sh

run_stage() {
  local stop_at=''
  case $stage in
    facts) needs python3 facts 60 python3 -B "$here/tests/gpu/facts.py" "$MANIPLE" "$results/facts.json" ;;
    smoke)
      stop_at=$sticky
      try smoke.primitives 24 "$build/primitives_gpu_test" --gtest_filter='*/0'
      try smoke.tiles 24 "$build/cuda_kernels_gpu_test" --gtest_filter="$tiles"
      try smoke.kernels 24 "$build/kernels_test" --gtest_filter="$others"
      for part in text graphs; do try "smoke.$part" 24 bash "$HERE/gpu.sh" "$part"; done
      ;;
    kernels)
      for part in ceilings decode prefill gemm codes library_codes experts rows sampling launches blocks; do try "kernels.$part" 40 "$build/kernel_bench" "$part"; done
      ;;
    single) serve true ;;
    engine) serve python3 ;;
    gates) gates gates ;;
    tests)
      gtest 1 60 primitives_gpu_test
      gtest 2 60 cuda_kernels_gpu_test
      gtest 2 60 kernels_test --gtest_filter='*/cuda*'
      gtest 1 60 model_test --gtest_filter='*/cuda*'
      MANIPLE_WHOLE=yes gtest 4 60 engine_test --gtest_filter='*/cuda*'  # all grids
      over_ranks 1_ranks 1
      over_ranks 2_ranks 2
      if nccl_shares_gpus; then
        over_ranks nccl 2 NCCL_MULTI_RANK_GPU_ENABLE=1 --transport=nccl
      else
        skip parallel_gpu_test.nccl 'two GPUs, or NCCL 2.30 or newer, which lets ranks share one'
      fi
      ((gpus > 1)) || ! nccl_shares_gpus || export NCCL_MULTI_RANK_GPU_ENABLE=1
      for part in "${parts[@]}"; do try "end_to_end.$part" 60 bash "$HERE/gpu.sh" "$part"; done
      ;;
    sanitizers)
      for tool in memcheck racecheck initcheck synccheck; do
        sanitize "$tool.tiles" cuda_kernels_gpu_test "$tiles"
        sanitize "$tool.kernels" kernels_test "$others"
      done
      ;;
    reference)
      for type in fp32 bf16 fp16; do
        needs torch "reference.$type" 120 python3 -B "$here/tests/fuzz/against_transformers.py" --program "$MANIPLE" --mpirun "$MPIRUN" --dtype $type \
          --seed 1 --models 4 --backend cuda --transport host
      done
      ;;
    peers)
      for part in decode prefill single engine; do
        needs torch "peers.$part" 120 python3 -B "$here/tests/gpu/peers.py" "$results/qwen3-0.6b" "$results/engine.jsonl" "$part"
      done
      gates gates.peers
      ;;
  esac
}

# --- the archive ---
pack() {
  local folder most file
  folder=$(mktemp -d)
  archive=${OUT:-.}/maniple-gpu-$(date -u +%F)-$(cut -d, -f1 <<<"$device" | tr -cs 'A-Za-z0-9\n' -).tar.gz
  for most in 1000000 100000 10000; do
    mkdir -p "$folder/gpu-results"
    for file in "$results"/{done,facts.json,measurements.jsonl,table.md,*.log}; do
      [ -s "$file" ] || continue
      if [[ $file != *.log ]] || (($(stat -c %s "$file") <= most)); then cat "$file"; else
        head -c $((most / 2)) "$file"
        printf '\n... cut ...\n'
        tail -c $((most / 2)) "$file"
      fi | scrub >"$folder/gpu-results/${file##*/}"
    done
    tar -C "$folder" --owner=0 --group=0 --numeric-owner -czf "$archive" gpu-results
    (($(stat -c %s "$archive") >= 16 << 20)) || break
  done
  rm -rf "$folder"
}
finish() {
  local code=$?
  end_session
  pack
  rm -f "$names" "$results/samples"
  echo "$archive: $(($(stat -c %s "$archive") / 1000)) kB"
  exit $code
}
trap finish EXIT
trap 'exit 143' INT TERM

model_folder "$results/qwen3-0.6b"
single_request >"$results/single.jsonl"
[ -s "$results/engine.jsonl" ] || ! has python3 || nano_vllm_requests >"$results/engine.jsonl"
for stage in "$@"; do sed -i "/^$stage /d" "$results/done" 2>/dev/null; done
[ $# -gt 0 ] || set -- "${all[@]}"
for stage; do
  run_stage
  [ -z "$tried" ] || pack  # a call may be killed
done
[ ${#left[@]} -eq 0 ] || echo "left to the next call: ${left[*]}"
[ -z "$failed" ] || exit 1
[ ${#left[@]} -eq 0 ] || exit 75
