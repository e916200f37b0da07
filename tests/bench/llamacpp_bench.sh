#!/usr/bin/env bash
# Tokens per second of maniple and of llama.cpp on the same threads, in turns, medians of 5 rounds, and their ratio: decode by batch, prefill of 512 tokens.
# Random weights of Qwen3-0.6B's shape, or with SHAPE=gpt-oss of eight layers of gpt-oss-20b's (random_gguf.py). llama.cpp runs with flash attention on and
# off; the better one counts. Prints a Markdown table.
#   tests/bench/llamacpp_bench.sh DIR THREADS [BUILD_FOLDER]
# DIR: a folder in which llama.cpp was built for this processor (bin/llama-bench, llama-batched-bench, llama-quantize). PYTHON: one with the package gguf.
# ROUNDS, BATCHES, PROMPT, GENERATE and FORMATS in the environment change the sizes: "1 8 32 64", 128, 32, "bf16 int8 int4".
set -euo pipefail
llama=${1:?usage: llamacpp_bench.sh DIR THREADS [BUILD_FOLDER]}/bin
threads=${2:?usage: llamacpp_bench.sh DIR THREADS [BUILD_FOLDER]}
maniple=${3:-build/bench}/maniple
python=${PYTHON:-python3}
rounds=${ROUNDS:-5} prompt=${PROMPT:-128} generate=${GENERATE:-32} formats=${FORMATS:-bf16 int8 int4}
read -ra batches <<< "${BATCHES:-1 8 32 64}"
shape=${SHAPE:-qwen3}
[ "$shape" = qwen3 ] || formats=mxfp4
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# types FORMAT: those of llama.cpp that a format is compared with
types() { case $1 in bf16) echo BF16 ;; int8) echo Q8_0 ;; int4) echo Q4_0 Q4_K_M ;; mxfp4) echo MXFP4 ;; esac; }

case $shape in
  qwen3) cat > "$folder/config.json" << 'JSON'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
 "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
 "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000,
 "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": true, "torch_dtype": "bfloat16"}
JSON
    block=30
    "$python" "$here/random_gguf.py" "$folder/BF16.gguf" ;;
  gpt-oss) cat > "$folder/config.json" << 'JSON'
{"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
 "num_hidden_layers": 8, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 4,
 "vocab_size": 16384, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 150000, "sliding_window": 128, "swiglu_limit": 7.0,
 "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096, "truncate": false},
 "hidden_act": "silu", "attention_bias": true, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
 "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}
JSON
    block=9  # 4.2 MB, and as much for windows
    "$python" "$here/random_gguf.py" "$folder/MXFP4.gguf" gpt-oss ;;
esac
for format in $formats; do
  for type in $(types "$format"); do
    [ -e "$folder/$type.gguf" ] || "$llama/llama-quantize" "$folder/BF16.gguf" "$folder/$type.gguf" "$type" "$threads" > "$folder/log" 2>&1 ||
      { cat "$folder/log" >&2; exit 1; }
  done
done

# Each prints lines of "CASE TOKENS_PER_SECOND"; a case is a batch, or prefill.
run_llama() { # TYPE FLASH
  local list most=${batches[-1]}
  list=$(IFS=,; echo "${batches[*]}")
  bench() {
    "$llama/llama-batched-bench" -m "$folder/$1.gguf" -t "$threads" -tb "$threads" -fa "$2" --output-format jsonl "${@:3}" 2> "$folder/log" ||
      { cat "$folder/log" >&2; exit 1; }
  }
  bench "$1" "$2" -c $((most * (prompt + generate))) -npp "$prompt" -ntg "$generate" -npl "$list" |
    sed -nE 's/.*"pl": ([0-9]+),.*"speed_tg": ([0-9.]+).*/\1 \2/p'
  bench "$1" "$2" -c 1024 -npp 512 -ntg 1 -npl 1 | sed -nE 's/.*"speed_pp": ([0-9.]+).*/prefill \1/p'
}
run_maniple() { # FORMAT
  # The KV cache is as large as the case needs, as -c makes llama.cpp's: memory is used for the first time before the clock runs, on both sides.
  kv_memory() { echo $(($1 * (($2 + 255) / 256) * block))M; } # SEQUENCES TOKENS: blocks of 256 tokens, of Qwen3 29.4 MB each
  local options=(--model "$folder" --load random --threads "$threads" --max-model-len 1024 --repeats 1 --quiet --json "$folder/out.json" --overwrite
    --schedule prefill-first)
  case $1 in bf16 | mxfp4) ;; *) options+=(--quantize "$1") ;; esac
  for batch in "${batches[@]}"; do
    "$maniple" bench latency "${options[@]}" --max-num-seqs "$batch" --batch-size "$batch" --lengths "fixed:$prompt/$((generate + 1))" \
      --kv-memory "$(kv_memory "$batch" $((prompt + generate + 1)))" > "$folder/log"
    python3 -c 'import json, sys
for row in json.load(open(sys.argv[1]))["rows"]: print(row["batch_size"], 1000 * row["batch_size"] / row["median_of_p50_itl_ms"])' "$folder/out.json"
  done
  "$maniple" bench latency "${options[@]}" --batch-size 1 --lengths fixed:512/1 --kv-memory "$(kv_memory 1 513)" > "$folder/log"
  python3 -c 'import json, sys
print("prefill", 512000 / json.load(open(sys.argv[1]))["rows"][0]["median_ttft_ms"])' "$folder/out.json"
}

for ((round = 0; round < rounds; ++round)); do
  for format in $formats; do
    run_maniple "$format" | sed "s/^/$format maniple /"
    for type in $(types "$format"); do
      for flash in on off; do run_llama "$type" "$flash" | sed "s/^/$format $type,$flash /"; done
    done
  done
done > "$folder/samples"

"$llama/llama-bench" --version 2>&1 | grep -m1 -iE 'version|build' || true
python3 - "$folder/samples" "$threads" "$rounds" "${batches[@]}" << 'PYTHON'
import collections, statistics, sys
samples = collections.defaultdict(list)
for line in open(sys.argv[1]):
    form, engine, case, value = line.split()
    samples[form, engine, case].append(float(value))
cases = sys.argv[4:] + ["prefill"]
print(f"\nTokens per second, {sys.argv[2]} threads, medians of {sys.argv[3]} rounds in turns; ratio: maniple / the better of flash attention on and off\n")
print("| | " + " | ".join(f"batch {c}" if c != "prefill" else "prefill 512" for c in cases) + " |\n|---|" + "--:|" * len(cases))
row = lambda name, values, style: print(f"| {name} | " + " | ".join(format(v, style) for v in values) + " |")
for form in dict.fromkeys(key[0] for key in samples):
    median = lambda engine: [statistics.median(samples[form, engine, case]) for case in cases]
    ours = median("maniple")
    row(f"maniple {form}", ours, ".0f")
    for kind in dict.fromkeys(key[1].split(",")[0] for key in samples if key[0] == form and "," in key[1]):
        both = [median(f"{kind},{flash}") for flash in ("on", "off")]
        for flash, values in zip(("on", "off"), both):
            row(f"llama.cpp {kind}, flash attention {flash}", values, ".0f")
        row(f"**ratio to {kind}**", [our / max(pair) for our, *pair in zip(ours, *both)], ".2f")
PYTHON
