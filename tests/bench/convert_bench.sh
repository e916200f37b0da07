#!/usr/bin/env bash
# Packed models against directories, warm: time to load at tp 1, 2 and 4, and convert against cp and sync -f of the same files. Both sides in turns;
# prints medians of the ratios, as Markdown. Usage: tests/bench/convert_bench.sh [ROUNDS] [MODEL]; without MODEL one of Qwen3-0.6B's shape, 1.2 GB,
# of random bytes. MPIRUN: the launcher, with its options. THREADS: of each rank, for loads; without it those that maniple takes.
set -euo pipefail
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
here=$(cd "$(dirname "$0")" && pwd)
rounds=${1:-7}
program=${MANIPLE:-$here/../../build/release/maniple}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# A safetensors file of this many layers, bf16 values of small size.
make_model() {
  python3 - "$folder/model" <<'PYTHON'
import json, os, random, struct, sys
hidden, ffn, heads, kv, dim, layers, words = 1024, 3072, 16, 8, 128, 28, 151936
config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
          "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": dim, "vocab_size": words, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
          "max_position_embeddings": 4096, "tie_word_embeddings": True, "hidden_act": "silu", "torch_dtype": "bfloat16", "eos_token_id": 0}
shapes = {"model.embed_tokens.weight": [words, hidden], "model.norm.weight": [hidden]}
for i in range(layers):
    p = f"model.layers.{i}."
    shapes |= {p + "input_layernorm.weight": [hidden], p + "post_attention_layernorm.weight": [hidden],
               p + "self_attn.q_proj.weight": [heads * dim, hidden], p + "self_attn.k_proj.weight": [kv * dim, hidden],
               p + "self_attn.v_proj.weight": [kv * dim, hidden], p + "self_attn.o_proj.weight": [hidden, heads * dim],
               p + "self_attn.q_norm.weight": [dim], p + "self_attn.k_norm.weight": [dim], p + "mlp.gate_proj.weight": [ffn, hidden],
               p + "mlp.up_proj.weight": [ffn, hidden], p + "mlp.down_proj.weight": [hidden, ffn]}
header, end = {}, 0
for name, shape in shapes.items():
    size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
    end += size
os.makedirs(sys.argv[1])
json.dump(config, open(sys.argv[1] + "/config.json", "w"))
text = json.dumps(header).encode()
block = bytes(b for _ in range(1 << 19) for b in (random.randrange(256), 0x3c))
with open(sys.argv[1] + "/model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    while end > 0:
        file.write(block[:end])
        end -= len(block)
PYTHON
}
model=${2:-$folder/model}
[[ -e $model ]] || make_model
bytes=$(du -sb "$model" | cut -f1)

printf '{"tokens":[1],"max_tokens":1}\n' >"$folder/in"
# A virtual machine may take 0.05 s or 2 s for the same memory, whichever form is loaded: before each load, memory is used and freed.
load_seconds() {  # MODEL TP
  local launcher=()
  python3 -c '
import mmap, sys
memory = mmap.mmap(-1, int(sys.argv[1]) >> 21 << 21, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
memory[::4096] = b"x" * (len(memory) >> 12)' $((5 * bytes / 2))
  (($2 == 1)) || read -ra launcher <<<"${MPIRUN:-mpirun --oversubscribe -n} $2"
  rm -rf "$folder/run"
  "${launcher[@]}" "$program" generate --model "$1" --tp "$2" ${THREADS:+--threads "$THREADS"} --in "$folder/in" --run-dir "$folder/run" >"$folder/log" 2>&1 </dev/null ||
    { cat "$folder/log" >&2 && exit 1; }
  grep -oE '"load_seconds": *[0-9.e-]+' "$folder/run/jobs/1/record.json" | grep -oE '[0-9.e-]+$'
}
median() { sort -n | awk '{ all[NR] = $1 } END { printf "%.3f", (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'; }
ratio() { paste -d' ' "$1" "$2" | awk '{ print $1 / $2 }' | median; }  # FILES of seconds

seconds_of() {
  local TIMEFORMAT=%R
  { time "$@" >/dev/null 2>"$folder/log"; } 2>&1
}
copy() { cp -r "$model" "$folder/copy" && sync -f "$folder/copy"; }
cat "$model"/* >/dev/null
for ((round = 0; round < rounds; round++)); do
  seconds_of "$program" convert "$model" "$folder/m.h5" --overwrite >>"$folder/convert"
  seconds_of copy >>"$folder/cp"
  rm -r "$folder/copy"
done
sync -f "$folder"  # nothing of the above is still being written
cat "$folder/m.h5" "$model"/* >/dev/null
for ((round = 0; round < rounds; round++)); do
  for tp in 1 2 4; do
    ((round % 2)) || load_seconds "$folder/m.h5" $tp >>"$folder/packed$tp"
    load_seconds "$model" $tp >>"$folder/plain$tp"
    ((round % 2 == 0)) || load_seconds "$folder/m.h5" $tp >>"$folder/packed$tp"
  done
done
printf '| %d rounds | s | s | ratio |\n|---|--:|--:|--:|\n' "$rounds"
row() { printf '| %s | %s | %s | %s |\n' "$1" "$(median <"$2")" "$(median <"$3")" "$(ratio "$2" "$3")"; }
row "convert / cp and sync -f" "$folder/convert" "$folder/cp"
for tp in 1 2 4; do row "load packed / safetensors, tp $tp" "$folder/packed$tp" "$folder/plain$tp"; done
