#!/usr/bin/env bash
# All tests and benchmarks that need a GPU, in stages of less than ten minutes that also run alone, and one table of the results.
#   tests/gpu/run.sh [--build FOLDER] [STAGE...]      stages: tests reference sanitizers kernels engine single peers gates
# Without --build it builds build/release for this machine's GPU. FOLDER may be a build, or usr/bin of an unpacked bundle
# (there: ./run tests/gpu/run.sh --build usr/bin).
# Logs and table.md are added to gpu-results/ in the current folder.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
build=
if [ "${1:-}" = --build ]; then build=$(cd "$2" && pwd); shift 2; fi
stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(tests reference sanitizers kernels engine single peers gates)
if ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
  echo "no GPU: nvidia-smi lists none; run this on a GPU node" >&2
  exit 69
fi
if [ -z "$build" ]; then
  CUDAARCHS=native "$here/launch/setup.sh" release
  build=$here/build/release
fi
export MANIPLE_TEST_DATA=${MANIPLE_TEST_DATA:-$here/tests/data} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
results=$PWD/gpu-results
mkdir -p "$results"
table=$results/table.md
device=$(nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader | head -1)
[ -s "$table" ] || printf '| date | device, driver, clocks | stage | result | command |\n|---|---|---|---|---|\n' >"$table"

# shellcheck disable=SC2016
row() { printf '| %s | %s | %s | %s | `%s` |\n' "$(date -u +%FT%TZ)" "$device" "$1" "$2" "$3" | tee -a "$table"; }
# try STAGE COMMAND...: a row with the outcome, and the last output line of the command that matches $summary
failed=0
summary=.
mpirun="mpirun --oversubscribe --allow-run-as-root --bind-to none --mca btl self,vader --mca mpi_yield_when_idle 1"
has_torch() { python3 -c 'import torch, transformers' 2>/dev/null || { row "$1" "skipped: no torch with transformers" python3; false; }; }
try() {
  local stage=$1 log=$results/$1.log outcome=passed
  shift
  timeout 570 "$@" >"$log" 2>&1 || { outcome="FAILED ($?)"; failed=1; tail -n 30 "$log" >&2; }
  ! grep -q 'no GPU: ' "$log" || { outcome=SKIPPED; failed=1; }
  row "$stage" "$outcome: $(grep -E "$summary" "$log" | tail -n 1 | cut -c1-160)" "$(basename "$1") ${*:2}"
}

model_folder() { # FOLDER: Qwen3-0.6B's shape, weights are random
  mkdir -p "$1"
  cat >"$1/config.json" <<'JSON'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
 "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-06,
 "rope_theta": 1000000, "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": true, "torch_dtype": "bfloat16"}
JSON
}

nano_vllm_requests() { python3 "$here/tests/gpu/nano_vllm_requests.py"; }
single_request() { python3 -c 'print("{\"id\": 0, \"tokens\": %s, \"max_tokens\": 512, \"temperature\": 0, \"ignore_eos\": true}" % list(range(128)))'; }

serve() { # STAGE: from $results/STAGE.jsonl, twice; the row holds the program's own summary
  local summary='tok/s'
  model_folder "$results/qwen3-0.6b"
  for run in 1 2; do
    try "$1.$run" "$build/maniple" generate --backend cuda --model "$results/qwen3-0.6b" --load random --max-model-len 4096 \
      --max-num-batched-tokens 16384 --in "$results/$1.jsonl" --out "$results/$1.$run.out" --overwrite
  done
}

for stage in "${stages[@]}"; do
  case $stage in
    tests)
      for name in primitives_gpu_test cuda_kernels_gpu_test; do try "$name" "$build/$name" --gtest_brief=1; done
      for name in kernels_test model_test; do try "$name" "$build/$name" --gtest_brief=1 --gtest_filter='*/cuda*'; done
      try engine_test env MANIPLE_WHOLE=yes "$build/engine_test" --gtest_brief=1 --gtest_filter='*/cuda*'  # all grids
      # shellcheck disable=SC2086
      for ranks in 1 2; do try parallel_gpu_test.${ranks}_ranks $mpirun -n $ranks "$build/parallel_gpu_test" --ranks=$ranks --gtest_brief=1; done
      MANIPLE=$build/maniple MPIRUN=$mpirun DATA=$MANIPLE_TEST_DATA HERE=$here/tests/end_to_end try end_to_end bash "$here/tests/end_to_end/gpu.sh"
      ;;
    reference)
      has_torch "$stage" || continue
      for type in fp32 bf16 fp16; do
        try "reference.$type" python3 "$here/tests/fuzz/against_transformers.py" --program "$build/maniple" --mpirun "$mpirun" --dtype $type --seed 1 --models 10 \
          --backend cuda --transport host
      done
      ;;
    sanitizers)
      for tool in memcheck racecheck initcheck synccheck; do
        try "$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/cuda_kernels_gpu_test" --gtest_brief=1 --gtest_filter='*/0'
      done
      ;;
    kernels) try kernels "$build/kernel_bench" ;;
    engine) nano_vllm_requests >"$results/engine.jsonl"; serve engine ;;
    single) single_request >"$results/single.jsonl"; serve single ;;
    peers)
      has_torch "$stage" || continue
      model_folder "$results/qwen3-0.6b"
      nano_vllm_requests >"$results/engine.jsonl"
      for part in attention single engine; do
        try "peers.$part" python3 "$here/tests/gpu/peers.py" "$results/qwen3-0.6b" "$results/engine.jsonl" "$part"
      done
      ;;
    gates)
      model_folder "$results/qwen3-0.6b"
      while IFS='|' read -r gate result; do row "${gate% }" "${result# }" "gates.py"; done \
        < <(python3 "$here/tests/gpu/gates.py" "$results" "$results/qwen3-0.6b")
      ;;
    *) echo "unknown stage $stage: tests, reference, sanitizers, kernels, engine, single, peers or gates" >&2; exit 64 ;;
  esac
done
exit $failed
