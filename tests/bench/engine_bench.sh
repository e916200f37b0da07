#!/usr/bin/env bash
# The whole program with random weights of Qwen3-0.6B's shape, against the speed of its matrix products alone in the
# same run: decode of 1 and 32 sequences, prefill of 512 tokens. Prints a Markdown table.
#   tests/bench/engine_bench.sh BUILD_FOLDER [THREADS]
#
# Each case runs short and long. A step's time is the difference: it leaves out the first use of pages of the KV cache
# (the system zeroes them once). The last column includes it.
set -euo pipefail
build=${1:?usage: engine_bench.sh BUILD_FOLDER [THREADS]}
threads=${2:-$(nproc)}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/config.json" << 'JSON'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
 "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
 "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000,
 "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": true, "bos_token_id": 151643,
 "eos_token_id": 151645, "torch_dtype": "bfloat16"}
JSON

# requests COUNT PROMPT_TOKENS NEW_TOKENS: JSON lines
requests() {
  awk -v count="$1" -v prompt="$2" -v new="$3" 'BEGIN {
    srand(1)
    for (id = 0; id < count; ++id) {
      tokens = int(rand() * 150000)
      for (i = 1; i < prompt; ++i) tokens = tokens "," int(rand() * 150000)
      printf "{\"id\":%d,\"tokens\":[%s],\"max_tokens\":%d,\"temperature\":0,\"ignore_eos\":true}\n", id, tokens, new
    }
  }'
}

# seconds PHASE COUNT PROMPT_TOKENS NEW_TOKENS [OPTION...]: of prefill or decode, as the program reports them
seconds() {
  local phase=$1
  requests "$2" "$3" "$4" > "$folder/in.jsonl"
  "$build/maniple" generate --model "$folder" --load random --threads "$threads" --max-model-len 4096 \
    --kv-memory 2G --no-prefix-cache --in "$folder/in.jsonl" --out "$folder/out.jsonl" --overwrite "${@:5}" 2> "$folder/log" ||
    { cat "$folder/log" >&2; exit 1; }
  sed -nE "s/.*times: .*$phase ([0-9.]+) s.*/\1/p" "$folder/log"
}

# sweep FIELD M [OPTION...]: a column of matmul_bench's table: 4 ms, 7 read GB/s
sweep() {
  "$build/matmul_bench" --threads "$threads" --rounds 5 --m "$2" "${@:3}" |
    awk -F'|' -v m="$2" -v field="$1" '$2 + 0 == m { print $field + 0 }'
}

# row NAME SHORT LONG STEPS_SHORT STEPS_LONG LIMIT_MS GOAL
row() {
  awk -v name="$1" -v short="$2" -v long="$3" -v few="$4" -v many="$5" -v limit="$6" -v goal="$7" 'BEGIN {
    step = (long - short) * 1000 / (many - few)
    printf "| %s | %.1f | %.1f | %.0f %% | %d %% | %.1f |\n", name, step, limit, 100 * limit / step, goal, long * 1000 / many
  }'
}

bandwidth=$(sweep 7 1)
reading=$(awk -v rate="$bandwidth" 'BEGIN { print 1.192 / rate * 1000 }')
echo "Qwen3-0.6B's shape, bf16, $threads threads; read bandwidth $bandwidth GB/s"
echo
echo "| case | ms a step | limit ms | of the limit | goal | with first use of memory |"
echo "|---|--:|--:|--:|--:|--:|"
row "decode 1; limit: reading 1.19 GB of weights" "$(seconds decode 1 16 32)" "$(seconds decode 1 16 160)" 31 159 "$reading" 80
row "decode 32; limit: matrix products" "$(seconds decode 32 16 16)" "$(seconds decode 32 16 80)" 15 79 "$(sweep 4 32)" 60
row "prefill 512; limit: matrix products without lm_head" "$(seconds prefill 2 512 1 --max-num-seqs 1)" \
  "$(seconds prefill 10 512 1 --max-num-seqs 1)" 2 10 "$(sweep 4 512 --lm-head 0)" 60
