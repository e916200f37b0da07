# Every mistake ends in one clear message and the documented exit code, within seconds, with one rank as with two. Each day two ranks make a
# sixth of the mistakes, and those that they tell in other ways.
. "$HERE/lib.sh"
say_cover
tiny=$DATA/models/tiny-qwen3
printf '{"tokens":[1,2,3],"max_tokens":4}\n' >"$work/in"

# limited RANKS arguments...: like `on`, but 20 s at most.
limited() {
  local ranks=$1
  shift
  if ((ranks == 1)); then timeout 20 "$MANIPLE" "$@" </dev/null; else timeout 20 $MPIRUN -n "$ranks" "$MANIPLE" "$@" </dev/null; fi
}

# expect RANKS CODE "words|that the message|holds" arguments...: RANKS may be several counts.
expect() {
  local counts=$1 code=$2 words=$3 ranks
  shift 3
  for ranks in $counts; do
    say "$ranks ranks, $code: $words"
    limited "$ranks" "$@" >"$work/out" 2>"$work/err"
    refused $? "$code" "$words" "$ranks ranks: $*"
  done
}
# choose_counts: sets $counts, one rank or also two. Some cases have `fixed=yes` before them.
fixed=
pairs=0
choose_counts() {
  counts=1
  [[ ! $fixed ]] && ! today 6 || { counts="1 2" && pairs=$((pairs + 1)); }
}
either() { choose_counts && expect "$counts" "$@"; }  # CODE WORDS arguments...
generate() { either "$1" "$2" generate "${@:3}"; }

# damaged NAME: a copy of the tiny model in $work/NAME. Its files are links, so a test can replace one of them.
damaged() {
  mkdir "$work/$1"
  ln -s "$tiny"/{config.json,model.safetensors} "$work/$1/"
}
# bad_model NAME WORDS: the test has damaged a file in $work/NAME.
bad_model() { generate 65 "$2" --model "$work/$1" --in "$work/in"; }

bad_tensor() {
  damaged "$1"
  rm "$work/$1/model.safetensors"
  "$HELPER" "$tiny" "$work/$1" "$1" || bad "make_damaged_model $1"
  bad_model "$1" "$2"
}
bad_config() {  # NAME SED-SCRIPT WORDS
  damaged "$1"
  rm "$work/$1/config.json"
  sed "$2" "$tiny/config.json" >"$work/$1/config.json"
  cmp -s "$tiny/config.json" "$work/$1/config.json" && bad "the sed script of $1 changed nothing"
  bad_model "$1" "$3"
}
bad_lines() {  # WORDS LINE...: printf formats
  local words=$1
  shift
  printf '%b\n' "$@" >"$work/lines"
  generate 65 "$words" --model "$model" --in "$work/lines"
}
# One request that only the model can refuse: its line holds the error, the others are served.
refused_line() {  # WORDS LINE
  local ranks
  choose_counts
  printf '{"id":"before","tokens":[5],"max_tokens":2}\n%s\n{"id":"after","tokens":[5],"max_tokens":2}\n' "$2" >"$work/lines"
  for ranks in $counts; do
    say "$ranks ranks, 1: a line with the error $1"
    limited $ranks generate --model "$model" --in "$work/lines" >"$work/out" 2>"$work/err"
    local rc=$?
    ((rc == 1)) || bad "exit code $rc, not 1 ($2): $(cat "$work/err")"
    sed -n 2p "$work/out" | grep -F '"error":' | grep -Fq -- "$1" || bad "no \"$1\" in the second line ($2): $(cat "$work/out")"
    (($(grep -c '"usage"' "$work/out") == 2)) || bad "the other requests were not served: $(cat "$work/out")"
  done
}

# The command line
fixed=yes either 64 "unknown option --max-token|did you mean --max-tokens?" generate --model "$model" --prompt a --max-token 3
either 64 "unknown command generat|did you mean generate?" generat --model "$model"
either 64 "unknown option --decod|did you mean --decode?" tokenize --model "$model" --decod
either 64 "unknown option --quik|did you mean --quick?" doctor --quik
generate 64 "--dtype (bf17) must be one of: auto, bf16, fp16, fp32|did you mean bf16?" --model "$model" --prompt a --dtype bf17
fixed=yes generate 69 "--dtype fp16 is for GPUs|--dtype bf16" --model "$model" --prompt a --backend cpu --dtype fp16
generate 64 "--kv-cache-dtype fp32 is not the type of the activations (bf16)|--dtype fp32 too" --model "$model" --prompt a --kv-cache-dtype fp32
generate 64 "--threads (0) must be a whole number from 1" --model "$model" --prompt a --threads 0
generate 64 "top_p|2" --model "$model" --prompt a --top-p 2
generate 64 "no model was given|--model DIR" --prompt a
generate 64 "both --prompt and --in" --model "$model" --prompt a --in "$work/in"
printf '# ours\nmax-tokens = 3\ntemprature = 0\n' >"$work/config"
generate 64 "config line 3: unknown option \"temprature\"|did you mean temperature?" --model "$model" --prompt a --config "$work/config"
generate 65 "cannot open|nowhere.conf" --model "$model" --prompt a --config "$work/nowhere.conf"
generate 65 "cannot read|given by --config" --model "$model" --prompt a --config "$work"
generate 64 "--run-dir is empty|variable of the shell" --model "$model" --in "$work/in" --run-dir ""
generate 65 "is not a directory|--run-dir" --model "$model" --in "$work/in" --run-dir "$work/in"
generate 64 "unknown option --nodes|options of sbatch" --nodes 4
bad_lines "line 1|beyond what 64-bit floating point holds" '{"tokens":[5],"temperature":1e400}'

generate 64 "belongs to no option|did you mean --in $work/in?" --model "$model" "$work/in"
generate 64 "did you mean --model $model?" --prompt a "$model"
generate 64 "is not a number" --model "$model" --prompt a --temperature nan
for args in -h -V "generate -h" "doctor -V" "merge --version"; do
  choose_counts
  for ranks in $counts; do
    say "$ranks ranks, 0: $args"
    limited $ranks $args >"$work/out" 2>"$work/err" && [[ ! -s $work/err ]] && (($(grep -c '^maniple' "$work/out") == 1)) || bad "$args: $(cat "$work/out" "$work/err")"
  done
done
say "--quiet says nothing of a run where all is well, and warnings"
for ranks in 1 2; do
  limited $ranks generate --model "$model" --prompt a --max-tokens 2 --quiet >"$work/out" 2>"$work/err" && [[ -s $work/out && ! -s $work/err ]] || bad "--quiet: $(cat "$work/err")"
done
limited 1 generate --model "$model" --prompt a --max-tokens 2 --quiet --threads $(($(nproc) + 1)) >"$work/out" 2>"$work/err" || bad "--quiet with too many threads: $(cat "$work/err")"
[[ $(grep -c '^maniple' "$work/err") == 1 && $(head -1 "$work/err") == "maniple: warning: --threads $(($(nproc) + 1)), but rank 0 "* ]] || bad "--quiet with too many threads: $(cat "$work/err")"

# Copies that another launcher started: one prints the message, all exit with the same code
for by in "PMI_SIZE PMI_RANK mpiexec" "FLUX_JOB_SIZE FLUX_TASK_RANK Flux" "PALS_LOCAL_SIZE PALS_RANKID PALS" "OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK mpirun"; do
  read -r size rank name <<<"$by"
  (
    export "$size=4" "$rank=0"
    expect 1 69 "4 copies were started, but MPI sees 1 rank in each: $name|$size=4|maniple was built with " generate --model "$model" --prompt a
    export "$rank=3"
    limited 1 doctor --quick >"$work/out" 2>&1
    rc=$?
    ((rc == 69)) && [[ ! -s $work/out ]] || bad "$size: rank 3 ended with $rc: $(cat "$work/out")"
    exit $((failures > 0))
  ) || bad "copies of $name"
done
PMI_SIZE=4 FLUX_JOB_SIZE=4 limited 2 doctor --quick >"$work/out" 2>&1 || bad "mpirun inside another launcher: $(cat "$work/out")"
PMI_RANK=2 limited 1 doctor --quick >"$work/out" 2>&1 && [[ -s $work/out ]] || bad "one copy, alone on purpose: $(cat "$work/out")"

# The grid
expect 3 65 "heads (8) do not divide by tensor ranks (3)|--tp 1, 2, 4 or 8" generate --model "$tiny" --in "$work/in" --tp 3
expect 3 64 "ranks (3) do not divide by --tp 2" generate --model "$tiny" --in "$work/in" --tp 2
expect 1 64 "ranks (1) do not divide by --tp 2" generate --model "$tiny" --in "$work/in" --tp 2
expect 4 64 "ranks (4) do not divide by --tp 1 times --pp 3; use --pp 1, 2 or 4, or start a multiple of 3 ranks" generate --model "$model" --in "$work/in" --pp 3
expect 8 65 "layers (5) are fewer than pipeline stages (8); use --pp 1, 2 or 4" generate --model "$model" --in "$work/in" --pp 8
expect 2 65 "--pp-layers adds up to 6 layers and the model has 5" generate --model "$model" --in "$work/in" --pp 2 --pp-layers 3,3
expect 2 64 "--pp-layers names 1 stage and --pp is 2" generate --model "$model" --in "$work/in" --pp 2 --pp-layers 5
expect 2 64 "--pp-layers (5,0): every stage needs a layer" generate --model "$model" --in "$work/in" --pp 2 --pp-layers 5,0
expect 1 64 "--pp-layers (3,x) must be whole numbers" generate --model "$model" --in "$work/in" --pp 2 --pp-layers 3,x
expect 4 65 "--cp 2 needs ranks that hold the same kv head, and --tp 4 gives each of 4 kv heads one; use --cp 1, or --tp 8" generate --model "$model" --in "$work/in" --tp 4 --cp 2
expect 8 65 "the 2 ranks of a kv head (--tp 8, 4 kv heads) do not divide by --cp 4; use --cp 1 or 2" generate --model "$model" --in "$work/in" --tp 8 --cp 4
generate 64 "--cp 2 needs --block-size 256, and 16 was given" --model "$model" --in "$work/in" --cp 2 --block-size 16
generate 64 "--cp 2 does not divide --tp 1; use --cp 1" --model "$model" --in "$work/in" --cp 2
expect 1 64 "--pp-steps needs --pp 2 or more" generate --model "$model" --in "$work/in" --pp-steps 2
generate 69 "no block|--kv-memory" --model "$tiny" --in "$work/in" --kv-memory 100

# The model's files
generate 65 "nowhere does not exist" --model "$work/nowhere" --in "$work/in"
bad_config architecture 's/Qwen3ForCausalLM/GemmaForCausalLM/' 'GemmaForCausalLM|Qwen3ForCausalLM'
say "config.json is looked at before the tokenizer and the input"
printf '{"model":{"type":"WordPiece"}}' >"$work/architecture/tokenizer.json"
printf '{"prompt"\n' >"$work/no-lines"
either 65 'GemmaForCausalLM' doctor --model "$work/architecture" --in "$work/no-lines" --quick
generate 65 'GemmaForCausalLM' --model "$work/architecture" --in "$work/no-lines"
bad_config rotary 's/"rope_type": "default"/"rope_type": "dynamic"/' 'rope_type|dynamic|llama3'
bad_config quantised 's/"hidden_act"/"quantization_config": {"bits": 4}, &/' 'quantization_config'
bad_config experts 's/"hidden_act"/"num_experts": 8, &/' 'num_experts|8'
bad_config head_size 's/"head_dim": 32/"head_dim": 33/' 'head_dim|33|even'
bad_config layers 's/"num_hidden_layers": 3/"num_hidden_layers": 4/' 'lacks|model.layers.3.'
bad_config half '$d' 'config.json|not valid JSON'
generate 65 "no tokenizer.json|--prompt is text" --model "$tiny" --prompt a
fixed=yes bad_tensor missing 'lacks 1 of|model.layers.1.mlp.up_proj.weight'
bad_tensor renamed 'lacks 33 of|and 28 more; it holds instead: transformer.h.0.input_layernorm.weight'
bad_tensor extra 'model.layers.7.mlp.gate.weight|no place'
bad_tensor misshapen 'model.layers.0.mlp.down_proj.weight|160, 64|64, 160'
bad_tensor mistyped 'model.layers.0.mlp.down_proj.weight|I16'
bad_tensor deep 'nested deeper than'
bad_tensor not-json 'not valid JSON'
bad_tensor beyond 'data_offsets|1099511627792|is the file complete?'
bad_tensor backward 'data_offsets|16,0'
bad_tensor overlap 'overlapping'
bad_tensor product 'data_offsets|4611686018427387904'
for size in 0 7 2000 300000; do
  damaged "cut$size"
  rm "$work/cut$size/model.safetensors"
  head -c $size "$tiny/model.safetensors" >"$work/cut$size/model.safetensors"
  case $size in 0 | 7) words="has $size bytes" ;; *) words="complete" ;; esac
  bad_model "cut$size" "$words|model.safetensors"
done
damaged huge
rm "$work/huge/model.safetensors"
printf '\377\377\377\377\377\377\377\177{}' >"$work/huge/model.safetensors"
bad_model huge "the header claims 9223372036854775807 bytes"
damaged shard
rm "$work/shard/model.safetensors"
printf '{"weight_map":{"model.norm.weight":"../in"}}' >"$work/shard/model.safetensors.index.json"
bad_model shard "model.norm.weight|../in"
damaged absent
rm "$work/absent/model.safetensors"
bad_model absent "no *.safetensors file"

# The input
fixed=yes bad_lines "1 bad line|line 2|JSON" '{"prompt":"a"}' '{"prompt":"b"' '{"prompt":"c"}'
bad_lines "2 bad lines|line 1|line 3" '[]' '{"prompt":"b"}' '{"promt":"c"}'
bad_lines 'line 3|the id "x" is that of line 1' '{"id":"x","prompt":"a"}' '{"id":"y","prompt":"a"}' '{"id":"x","prompt":"b"}'
bad_lines "line 2|UTF-8" '{"prompt":"a"}' '{"prompt":"\0377\0376"}'
bad_lines "line 1|neither prompt nor tokens" '{"id":1}'
bad_lines "unknown field \"temprature\"|did you mean \"temperature\"" '{"prompt":"a","temprature":1}'
bad_lines "holds no request" ''
generate 65 "--prompt|UTF-8" --model "$model" --prompt $'\377'
generate 65 "cannot open|nowhere.jsonl" --model "$model" --in "$work/nowhere.jsonl"
fixed=yes refused_line "token id 2048 is not in the vocabulary (0 to 2047)" '{"id":1,"tokens":[5,2048]}'
refused_line "empty" '{"id":1,"prompt":""}'
refused_line "empty" '{"id":1,"tokens":[]}'
refused_line "4096" "{\"id\":1,\"tokens\":[$(printf '7,%.0s' {1..4200})7]}"
refused_line "temperature" '{"id":1,"tokens":[5],"temperature":-1}'
generate 1 "empty" --model "$model" --prompt ""

# The output
generate 65 "cannot write|nowhere/out|No such file" --model "$model" --prompt a --out "$work/nowhere/out"
fixed=yes generate 76 "cannot write results to /dev/full|No space left" --model "$model" --prompt a --max-tokens 3 --out /dev/full
generate 64 "the same file" --model "$model" --in "$work/in" --out "$work/in"
printf 'precious\n' >"$work/precious"
generate 65 "precious is there already, 9 bytes|--overwrite" --model "$model" --in "$work/in" --out "$work/precious"
expect 1 65 "precious is there already|--overwrite" tokenize --model "$model" --in "$work/in" --out "$work/precious"
[[ $(cat "$work/precious") == precious ]] || bad "the refused jobs changed the file: $(cat "$work/precious")"
say "a requeued job overwrites what it left, and says so once"
limited 1 generate --model "$model" --in "$work/in" --out "$work/precious" 2>"$work/err" && bad "overwritten without a requeue"
SLURM_JOB_ID=7 SLURM_RESTART_COUNT=1 limited 1 generate --model "$model" --in "$work/in" --out "$work/precious" 2>"$work/err" || bad "a requeued job: $(cat "$work/err")"
(($(grep -c 'overwrites .*/precious' "$work/err") == 1 && $(grep -c 'if Slurm requeues this job' "$work/err") == 1)) && grep -q '"usage"' "$work/precious" ||
  bad "a requeued job: $(cat "$work/err" "$work/precious")"
[[ $(tail -1 "$work/err") == *"results: $work/precious" ]] || bad "the last line does not name the results: $(cat "$work/err")"

say "a reader that leaves ends it, silently, as SIGPIPE ends other programs"
# cut_short CODES command...: pipes its output into head. mpirun reports an abort and may crash (Open MPI 4.1); maniple prints nothing.
cut_short() {
  local codes=$1 rc
  shift
  timeout 60 "$@" 2>"$work/err" </dev/null | head -1 >/dev/null
  rc=${PIPESTATUS[0]}
  [[ " $codes " == *" $rc "* ]] || bad "exit code $rc, not $codes: $*: $(cat "$work/err")"
  ! grep -q 'maniple: error' "$work/err" || bad "$*: $(cat "$work/err")"
}
for i in {1..300}; do printf '{"tokens":[%d],"max_tokens":30,"ignore_eos":true,"logprobs":9}\n' $i; done >"$work/many"
for i in {1..30000}; do printf '"ROMEO and JULIET"\n'; done >"$work/texts"
cut_short 141 "$MANIPLE" generate --model "$model" --in "$work/many"
cut_short 141 "$MANIPLE" tokenize --model "$model" --in "$work/texts"
cut_short "1 139 141" $MPIRUN -n 2 "$MANIPLE" generate --model "$model" --in "$work/many"
timeout 60 $MPIRUN -n 2 bash -c '"$@" | head -1 >/dev/null; exit "${PIPESTATUS[0]}"' sh "$MANIPLE" generate --model "$model" --in "$work/many" >"$work/out" 2>"$work/err" </dev/null
(($? == 141)) && ! grep -q 'maniple: error' "$work/err" || bad "the reader of rank 0 has left: $(cat "$work/err")"

say "ids without a token are left out, and said so"
decoded() { "$MANIPLE" tokenize --model "$model" --decode --in <(printf '%s\n' "$@") 2>"$work/err"; }
[[ $(decoded '[5,6]' '[]') == $(decoded '[5,999999,6]' '[2048]') ]] || bad "other text beside an id without a token"
grep -Eq "note: left out 2 ids without a token, as Hugging Face's tokenizers do; the first: 999999, .*line 1$" "$work/err" || bad "left out: $(cat "$work/err")"

say "ulimit -v is named where it is what memory or threads lack"
lacked=0
for mib in 60 90 140 190 300 600; do
  (ulimit -v $((mib << 10)) && "$MANIPLE" --version >/dev/null 2>&1) || continue  # the libraries alone need more
  (ulimit -v $((mib << 10)) && limited 1 generate --model "$model" --prompt a --max-tokens 4 >/dev/null 2>"$work/err")
  rc=$?
  ((rc == 0)) && continue  # with a smaller KV cache
  lacked=$((lacked + 1))
  ((rc == 69)) && grep -q 'ulimit -v allows this process' "$work/err" && grep -q 'try: ulimit -v unlimited' "$work/err" || bad "$mib MiB: exit code $rc: $(cat "$work/err")"
done
((lacked > 0)) || bad "every limit suffices"
say "1 ranks, 65: stdout is closed"
"$MANIPLE" generate --model "$model" --prompt a >&- 2>"$work/err"
(($? == 65)) && grep -Fq 'stdout is closed; write to a file' "$work/err" || bad "a closed stdout: $(cat "$work/err")"

say "what cannot be printed is a fault"
limited 1 generate --model "$model" --in "$work/in" --run-dir "$work/whole" 2>"$work/err" || bad "no run: $(cat "$work/err")"
for command in --version --help "status $work/whole"; do
  "$MANIPLE" $command >/dev/full 2>"$work/err"
  (($? == 76)) && grep -q 'cannot write to stdout: No space left' "$work/err" || bad "$command to a full disk: $(cat "$work/err")"
done
mkdir "$work/removed"
{ until_true 20 test -e "$work/removed/out"; rm "$work/removed/out"; echo '{"tokens":[5]}'; } | "$MANIPLE" generate --model "$model" --follow --in - --out "$work/removed/out" --quiet 2>"$work/err"
((PIPESTATUS[1] == 76)) && grep -q 'was removed while maniple wrote it' "$work/err" || bad "an output that somebody removed: $(cat "$work/err")"
say "merge into a folder that is not there"
"$MANIPLE" merge "$work/nowhere/out" "$work/whole" 2>"$work/err"
(($? == 65)) && grep -q 'nowhere/out: No such file' "$work/err" || bad "merge: $(cat "$work/err")"

say "what an unfinished download left in a file's place"
for file in config.json model.safetensors tokenizer.json; do
  damaged "lfs.$file"
  rm -f "$work/lfs.$file/$file"
  printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 494\n' >"$work/lfs.$file/$file"
  expect 1 65 "$file is a pointer of git-lfs|lfs pull" doctor --quick --model "$work/lfs.$file"
done
rm "$work/lfs.tokenizer.json/tokenizer.json"
printf '<!DOCTYPE html><html>Log in</html>' >"$work/lfs.tokenizer.json/tokenizer.json"
generate 65 "tokenizer.json is a web page|hf auth login" --model "$work/lfs.tokenizer.json" --prompt a

# tokenize, and a damaged tokenizer
printf '"a"\n{"txt":"b"}\n' >"$work/texts"
say "tokenize: the first bad line"
limited 1 tokenize --model "$model" --in "$work/texts" >"$work/out" 2>"$work/err"
(($? == 65)) && grep -Fq 'line 2' "$work/err" || bad "tokenize of a bad line: $(cat "$work/err")"
damaged tokenizer
printf '{"model":{"type":"WordPiece"}}' >"$work/tokenizer/tokenizer.json"
generate 65 "tokenizer.json|WordPiece" --model "$work/tokenizer" --prompt a
((pairs > 10)) || bad "only $pairs cases with two ranks"
finish
