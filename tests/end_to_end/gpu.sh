# The program on GPUs: golden text, graphs, and ranks that die or hang. All ranks share one GPU through the host's memory; with two GPUs, or
# where NCCL lets ranks share one, the same runs over NCCL too. Arguments name parts; without them all run.
. "$HERE/lib.sh"
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
((gpus > 0)) || { say "no GPU: nvidia-smi lists none"; exit 77; }
[ "${NCCL_MULTI_RANK_GPU_ENABLE:-}" != 1 ] || gpus=4
cuda=(--backend cuda --transport host)
over_nccl=(--backend cuda --transport nccl --tp 2)

golden_requests "$work/golden.jsonl" "$work/golden"
golden() { # RANKS options...: the golden text
  on "$1" generate "${@:2}" --model "$model" --in "$work/golden.jsonl" --temperature 0 --dtype fp32 >"$work/out" 2>"$work/err" ||
    bad "golden $*: exit code: $(cat "$work/err")"
  sed 's/"finish_reason.*//' "$work/out" | cmp - "$work/golden" || bad "not the golden text: $*"
}

for ((i = 0; i < 6; i++)); do
  tokens=$((i + 1))
  for ((t = 0; t < i * 61 % 310; t++)); do tokens+=,$(((i * 31 + t * 17) % 380)); done
  printf '{"id":%d,"tokens":[%s],"temperature":0,"max_tokens":%d,"ignore_eos":true}\n' $i "$tokens" $((i + 6))
done >"$work/tokens.jsonl"
as_on_cpus() { # MODEL RANKS options...: the tokens of one rank on a CPU, which are golden
  local tokens=(generate --model "$DATA/models/$1" --in "$work/tokens.jsonl" --dtype fp32)
  [[ -s $work/$1 ]] || on 1 "${tokens[@]}" --backend cpu >"$work/$1" 2>"$work/err" || bad "$1: $(cat "$work/err")"
  on "$2" "${tokens[@]}" "${@:3}" >"$work/out" 2>"$work/err" || bad "$*: exit code: $(cat "$work/err")"
  cmp "$work/out" "$work/$1" || bad "not the tokens of a CPU: $*"
}

eager_as_captured() { # RANKS options...: the same bits with graphs and without
  local mode
  for mode in "" "--eager"; do
    on "$1" generate "${@:2}" $mode --model "$model" --in "$HERE/prompts.jsonl" --seed 42 --max-tokens 24 >"$work/bf16$mode" 2>"$work/err"
    (($? == 1)) || bad "bf16 $* $mode: exit code: $(cat "$work/err")" # one of the requests is refused on purpose
  done
  cmp "$work/bf16" "$work/bf16--eager" || bad "graphs and eager steps gave other results: $*"
}

printf '{"prompt":"ROMEO:\\n","max_tokens":4000,"ignore_eos":true}\n%.0s' {1..400} >"$work/endless"
decoding() { until_true 60 grep -q 'KV cache' "$work/$1.err" || bad "$1: not decoding after 60 s: $(cat "$work/$1.err")"; }
hurt() { # SIGNAL RANK options...: the job ends
  local name=$1$2
  start "$name" 2 generate "${@:3}" --model "$model" --in "$work/endless" --out "$work/$name"
  find_ranks "$job" 2 && decoding "$name" && sleep 2 && kill "-$1" "${ranks[$2]}"
  until_true 60 all_gone "$job" "${ranks[@]}" || bad "$*: not ended after 60 s: $(cat "$work/$name.err")"
  kill -KILL "$job" 2>/dev/null
}

text() {
  golden 1 "${cuda[@]}"
  golden 1 "${cuda[@]}" --eager
}
graphs() { eager_as_captured 1 "${cuda[@]}"; }
nccl_graphs() { ((gpus < 2)) || eager_as_captured 2 "${over_nccl[@]}"; }
layouts() {
  golden 2 "${cuda[@]}" --tp 2
  golden 2 "${cuda[@]}" --tp 1
  golden 4 "${cuda[@]}" --tp 4 --block-size 16
  golden 4 "${cuda[@]}" --tp 2 --max-num-seqs 16 --max-num-batched-tokens 64
  ((gpus < 2)) || golden 2 "${over_nccl[@]}"
}
stages() {
  golden 2 "${cuda[@]}" --pp 2
  golden 4 "${cuda[@]}" --pp 2 --tp 2 --max-num-batched-tokens 64
  ((gpus < 2)) || golden 2 --backend cuda --transport nccl --pp 2
  ((gpus < 4)) || golden 4 --backend cuda --transport nccl --pp 2 --tp 2
}
experts() {
  local name
  for name in tiny-qwen3-moe tiny-mixtral; do
    as_on_cpus $name 1 "${cuda[@]}"
    as_on_cpus $name 4 "${cuda[@]}" --tp 2 --ep 2 --pp 2
    ((gpus < 2)) || as_on_cpus $name 2 "${over_nccl[@]}" --ep 2
    ((gpus < 2)) || as_on_cpus $name 2 "${over_nccl[@]}" --ep 1
  done
}
codes() {
  local name
  for name in q-gptq-act q-w4a16 q-fp8-static-kv q-moe-awq; do
    as_on_cpus $name 2 "${cuda[@]}" --tp 2
  done
}
context() {
  as_on_cpus tiny-qwen3-kv1 2 "${cuda[@]}" --tp 2 --cp 2
  ((gpus < 2)) || as_on_cpus tiny-qwen3-kv1 2 "${over_nccl[@]}" --cp 2
}
drill() { # SIGNAL RANK: tells nothing of a program that computes wrongly
  ((failures == 0)) || return
  hurt "$1" "$2" "${cuda[@]}" --tp 2
  ((gpus < 2)) || hurt "$1" "$2" "${over_nccl[@]}"
}
killed_0() { drill KILL 0; }
killed_1() { drill KILL 1; }
stopped_0() { drill STOP 0; }
stopped_1() { drill STOP 1; }

parts=(text graphs nccl_graphs layouts stages experts codes context killed_0 killed_1 stopped_0 stopped_1)
for part in "${@:-${parts[@]}}"; do
  [[ " ${parts[*]} " == *" $part "* ]] || { bad "unknown part $part: one of ${parts[*]}"; finish; }
  $part
done
finish
