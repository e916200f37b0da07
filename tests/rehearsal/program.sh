# The real program on stand-in GPUs. ctest sets the variables of end_to_end/lib.sh; MANIPLE is the rehearsed program.
. "$HERE/lib.sh"
export STAND_IN_FOLDER=$work

# on_gpus COUNT RANKS arguments... Steps of jobs are small: the longest prompt as one step, or the warm-up of a large one, takes the emulation
# longer than the job's deadline where others use the cores.
small=(--max-num-batched-tokens 64)
on_gpus() {
  local options=()
  [[ $3 != generate || "$*" == *--max-num-batched-tokens* ]] || options=("${small[@]}")
  STAND_IN_GPUS=$1 on "${@:2:2}" "${options[@]}" "${@:4}"
}
says() { grep -q "$2" "$work/$1" || bad "$1 does not say \"$2\": $(cat "$work/$1")"; }

golden_requests "$work/golden.jsonl" "$work/golden"
say_cover
# golden GPUS RANKS options...: the golden text of a fifth of the requests, another one for each layout and day.
golden() {
  local turn=$((cover_turn++)) file
  for file in golden.jsonl golden; do
    awk -v whole="${MANIPLE_WHOLE:-}" -v turn=$turn 'whole == "yes" || NR % 5 == turn % 5' "$work/$file" >"$work/$file.part"
  done
  on_gpus "$1" "$2" generate --model "$model" --in "$work/golden.jsonl.part" --temperature 0 --dtype fp32 "${@:3}" >"$work/out" 2>"$work/err" ||
    bad "golden $*: exit code: $(cat "$work/err")"
  sed 's/"finish_reason.*//' "$work/out" | cmp - "$work/golden.part" || bad "not the golden text: $*"
}
STAND_IN_NCCL=22907 golden 4 4 --tp 2 --max-num-seqs 16 --nccl-windows
says err 'NCCL .*, sums in windows; .*; fp32, attention on plain cores'
says err '6 graphs of decode steps of up to 16 sequences'
# Without tensor groups NCCL carries only weights, from the replica that has read them.
golden 2 2 --tp 1 --max-num-seqs 16
says err ', NCCL .*; fp32'
golden 3 4 --tp 4 --transport host --max-num-seqs 5 --block-size 16
says err 'GPU tensors through the host (as asked)'

# Stages: links over NCCL and through the host, three steps in flight, with graphs and without.
golden 2 2 --pp 2 --max-num-seqs 16
says err 'NCCL .*; fp32, attention on plain cores'
says err '2 ranks = tensor 1 x pipeline 2 x data 1'
says err '6 graphs of decode steps of up to 16 sequences'

# Grids of stages, experts, whole and split, and a shared context: the tokens of one rank on a CPU, which are golden.
for ((i = 0; i < 6; i++)); do
  tokens=$((i + 1))
  for ((t = 0; t < i * 61 % 310; t++)); do tokens+=,$(((i * 31 + t * 17) % 380)); done
  printf '{"id":%d,"tokens":[%s],"temperature":0,"max_tokens":%d,"ignore_eos":true}\n' $i "$tokens" $((i + 6))
done >"$work/tokens.jsonl"
as_on_cpus() { # MODEL GPUS RANKS options...
  local tokens=(generate --model "$DATA/models/$1" --in "$work/tokens.jsonl" --dtype fp32)
  [[ -s $work/$1 ]] || on 1 "${tokens[@]}" --backend cpu >"$work/$1" 2>"$work/err" || bad "$1: $(cat "$work/err")"
  on_gpus "$2" "$3" "${tokens[@]}" --backend cuda "${@:4}" >"$work/out" 2>"$work/err" || bad "$*: exit code: $(cat "$work/err")"
  cmp "$work/out" "$work/$1" || bad "not the tokens of a CPU: $*"
}
as_on_cpus tiny-qwen3 4 4 --pp 2 --tp 2 --pp-layers 1,2 --max-num-seqs 5 --eager
says err 'launches in order (NCCL_LAUNCH_ORDER_IMPLICIT)'
as_on_cpus tiny-qwen3 1 3 --pp 3 --pp-steps 2 --transport host --max-num-seqs 4
says err 'GPU tensors through the host (as asked)'
for backend in cpu cuda; do
  on_gpus 1 1 generate --model "$DATA/models/tiny-qwen3-moe" --in "$work/tokens.jsonl" --dtype fp32 --backend $backend --max-num-seqs 3 --run-dir "$work/moe.$backend" 2>"$work/err" ||
    bad "experts, $backend: exit code: $(cat "$work/err")"
done
for file in results.jsonl experts.json; do  # the load of experts, without that of the warm-up
  cmp "$work"/moe.{cpu,cuda}/$file || bad "$file: not that of a CPU: $(cat "$work"/moe.*/experts.json)"
done
as_on_cpus tiny-qwen3-moe 4 4 --tp 2 --ep 2 --pp 2 --max-num-seqs 4
says err '4 ranks = tensor 2 (expert 2) x pipeline 2 x data 1'
as_on_cpus tiny-mixtral 2 2 --tp 2 --ep 1
! today 4 || as_on_cpus tiny-deepseek-v3 2 2 --tp 2 --max-num-seqs 4
as_on_cpus tiny-deepseek-v2-lite 2 2 --tp 2 --cp 2 --max-num-seqs 4
as_on_cpus tiny-minimax-m2 2 2 --tp 2 --max-num-seqs 4
as_on_cpus tiny-gpt-oss 2 2 --tp 2 --max-num-seqs 4
as_on_cpus tiny-qwen3-kv1 2 2 --tp 2 --cp 2 --max-num-seqs 4
says err '2 ranks = tensor 2 (context 2) x data 1'
as_on_cpus tiny-qwen3-kv1 1 2 --tp 2 --cp 2 --transport host

# Weights of codes, inputs that are rounded, an FP8 cache.
for name in q-gptq-act q-w4a16 q-int8-1layer q-fp8-static-kv q-moe-awq q-moe-int8 q-mxfp4-gpt-oss; do
  today 3 || continue
  as_on_cpus $name 2 2 --tp 2 --max-num-seqs 4
done

# The same bits with and without graphs, in the types of tensor cores.
for type in bf16 fp16; do
  for steps in graphs eager; do
    [[ $steps == graphs ]] && mode= || mode=--eager
    on_gpus 2 2 generate --model "$model" --tp 2 --dtype $type --prompt 'ROMEO:' --seed 3 --max-tokens 12 --max-num-seqs 2 $mode \
      >"$work/$type.$steps" 2>"$work/err" || bad "$type $steps: exit code: $(cat "$work/err")"
  done
  says err "$type, attention on tensor cores"
  cmp "$work/$type.graphs" "$work/$type.eager" || bad "$type: graphs and eager steps gave other texts"
done

# The cache leaves room for all that a batch needs, and for what a library loads with the first large one.
STAND_IN_MIB=272 on_gpus 1 1 generate --model "$DATA/models/tiny-qwen3" --dtype bf16 --backend cuda --in "$work/tokens.jsonl" --eager --gpu-memory-utilization 1 --max-num-seqs 256 --max-num-batched-tokens 512 \
  >/dev/null 2>"$work/err" || bad "256 sequences in 272 MiB: $(cat "$work/err")"

# A decode step in a graph calls NCCL outside it only where a row is filtered.
calls() { # TOKENS options...: operations outside graphs
  STAND_IN_CALLS=$work/calls on_gpus 2 2 generate --model "$model" --tp 2 --prompt 'ROMEO:' --ignore-eos --max-num-seqs 2 --max-tokens "$@" >/dev/null 2>"$work/err" ||
    bad "calls: exit code: $(cat "$work/err")"
  wc -l <"$work/calls"
  rm "$work/calls"
}
few=$(calls 3 --temperature 0) many=$(calls 12 --temperature 0)
((few > 0 && few == many)) || bad "steps in graphs called NCCL: $few calls for 3 tokens, $many for 12"
filtered=$(calls 12 --top-k 3)
((filtered > many)) || bad "no call is seen: $filtered for filtered rows"

# An error on one GPU of two ends the job, with the rank and the message of CUDA. The host cannot see which rank waits on its GPU for which:
# over NCCL the message names all ranks that are equally far.
printf '{"prompt":"ROMEO:\\n","max_tokens":4000,"ignore_eos":true}\n%.0s' {1..8} >"$work/endless"
troubled() { # KIND TRANSPORT
  local job=("$MANIPLE" generate "${small[@]}" --model "$model" --tp 2 --transport "$2" --in "$work/endless" --out "$work/lost" --overwrite --max-num-seqs 8 --deadline 9)
  STAND_IN_GPUS=2 timeout 60 $MPIRUN -n 1 "${job[@]}" : -n 1 env STAND_IN_TROUBLE="$1" "${job[@]}" </dev/null >"$work/out" 2>"$work/err"
  local code=$?
  ((code == 76)) || bad "$*: exit code $code: $(cat "$work/err")"
}
troubled fault:3000 nccl
says err 'error: .*a kernel before this failed: an illegal memory access was encountered (cudaErrorIllegalAddress)'
says err 'try: the same with --eager and CUDA_LAUNCH_BLOCKING=1'
says err 'where: rank 1 on'
says err 'in step [0-9]*, a graph for 8 sequences'
troubled hang:3000 nccl
says err 'error: has made no progress for .*, nor has rank 1'
troubled hang:3000 host
says err 'error: rank 1 on .* has made no progress for [0-9]* s (last'

# A rank that dies while weights go from replica to replica.
dies=("$MANIPLE" generate "${small[@]}" --model "$model" --tp 1 --in "$work/endless" --out "$work/lost" --deadline 9)
STAND_IN_GPUS=2 timeout 60 $MPIRUN -n 1 "${dies[@]}" : -n 1 env STAND_IN_LAST_BROADCAST=5 "${dies[@]}" </dev/null >"$work/out" 2>"$work/err"
code=$?
((code == 76 || code == 137)) || bad "a death while weights are shared: exit code $code: $(cat "$work/err")"
says err 'error: rank 1 on .* has died'

# A missing library on a machine with a GPU: the loader finds an empty file first.
missing() { # LIBRARY RANKS: the message names it before weights are loaded, with a remedy
  mkdir -p "$work/$1" && : >"$work/$1/$1"
  LD_LIBRARY_PATH=$work/$1 on_gpus "$2" "$2" generate --model "$model" --prompt 'To be' --max-tokens 4 --backend cuda >/dev/null 2>"$work/err"
  (($? == 69)) || bad "no $1: exit code: $(cat "$work/err")"
  says err "error: $1 cannot be opened (.*$1: file too short)"
  says err 'load the site.s .* or add its library folder to LD_LIBRARY_PATH; packages: '
  (($(grep -c 'error:' "$work/err") == 1)) || bad "no $1: not one message: $(cat "$work/err")"
}
cublaslt=$(cd "${MANIPLE%/*}/stand_ins" && echo libcublasLt.so.*)
missing "$cublaslt" 1
missing "$cublaslt" 2
missing libnccl.so.2 2
LD_LIBRARY_PATH=$work/libnccl.so.2 on_gpus 2 2 generate --model "$model" --prompt 'To be' --max-tokens 4 --max-num-seqs 2 --transport host >/dev/null 2>"$work/err" ||
  bad "through the host NCCL is missed: $(cat "$work/err")"

# Memory: the cache takes the rest after the weights, and leaves enough for later allocations.
STAND_IN_MIB=264 on_gpus 1 1 generate --model "$model" --prompt 'To be' --max-tokens 4 --max-num-seqs 32 >/dev/null 2>"$work/err" ||
  bad "264 MiB: $(cat "$work/err")"
says err 'KV cache: [0-9]* blocks'
STAND_IN_MIB=184 on_gpus 1 1 generate --model "$model" --prompt 'To be' >/dev/null 2>"$work/err"
(($? == 69)) || bad "184 MiB: exit code: $(cat "$work/err")"
says err 'a larger --gpu-memory-utilization of GPUs'

# The choice of a GPU for each rank.
on_gpus 0 1 generate --model "$model" --backend cuda --prompt 'To be' >/dev/null 2>"$work/err"
(($? == 69)) || bad "no GPU: exit code: $(cat "$work/err")"
says err 'no GPU is visible'
on_gpus 0 1 generate --model "$model" --prompt 'To be' --max-tokens 4 >/dev/null 2>"$work/err" || bad "no GPU, any backend: $(cat "$work/err")"
says err '; cpu, '
on_gpus 1 2 generate --model "$model" --prompt 'To be' >/dev/null 2>"$work/err"
(($? == 69)) || bad "a shared GPU: exit code: $(cat "$work/err")"
says err 'have the same GPU'
STAND_IN_MAJOR=12 on_gpus 1 1 generate --model "$model" --prompt 'To be' >/dev/null 2>"$work/err"
(($? == 69)) || bad "a GPU without code: exit code: $(cat "$work/err")"
says err 'GPU code for 80-real 90-real, and stand-in has compute capability 12.0'
says err 'CMAKE_CUDA_ARCHITECTURES=120-real'
on_gpus 2 2 doctor --model "$model" --tp 2 >"$work/out" 2>&1 || bad "doctor: $(cat "$work/out")"
says out 'ok: a GPU for each rank'
says out 'ok: GPUs of a tensor group reach each other'
STAND_IN_PEERS=0 on_gpus 2 2 doctor --tp 2 --quick >"$work/out" 2>&1 || bad "doctor without peer access: $(cat "$work/out")"
says out 'warning: the GPUs of ranks 0-1 (.*) have no peer access to others of their tensor group'
on_gpus 0 1 doctor --backend cuda --quick >"$work/out" 2>&1
(($? == 69)) || bad "doctor without a GPU: $(cat "$work/out")"
! grep -q '^ok: .*GPU\|^ok: NCCL' "$work/out" || bad "a check of GPUs that are not there is ok: $(cat "$work/out")"
finish
