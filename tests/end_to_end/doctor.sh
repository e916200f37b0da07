# Preflight and doctor: what they print, what they refuse, and that a refused run can be started again.
. "$HERE/lib.sh"
printf '{"tokens":[5],"max_tokens":2}\n' >"$work/in"

# doctor RANKS CODE options...: its output goes to $work/out.
doctor() {
  local ranks=$1 code=$2 rc
  shift 2
  say "doctor: $ranks ranks $*"
  on "$ranks" doctor "$@" >"$work/out" 2>"$work/err"
  rc=$?
  ((rc == code)) || bad "doctor $*: exit code $rc, not $code: $(cat "$work/out" "$work/err")"
}
says() { grep -Eq -- "$1" "$work/out" || bad "doctor does not say \"$1\": $(cat "$work/out" "$work/err")"; }
# refused WORDS options...: doctor and generate refuse them before they read weights.
refused() {
  local words=$1 rc
  shift
  doctor 2 69 --model "$model" --quick "$@"
  says "^refused: $words"
  on 2 generate --model "$model" --in "$work/in" --run-dir "$work/refused" "$@" >"$work/out" 2>"$work/err"
  rc=$?
  ((rc == 69)) || bad "generate $*: exit code $rc, not 69: $(cat "$work/err")"
  grep -Eq "maniple: error: $words" "$work/err" || bad "generate $*: does not say \"$words\": $(cat "$work/err")"
  (($(grep -c 'maniple: error:' "$work/err") == 1)) || bad "generate $*: not exactly one message: $(cat "$work/err")"
  grep -q 'loaded in' "$work/err" && bad "generate $*: loaded the model: $(cat "$work/err")"
}

for ranks in 1 2; do
  doctor $ranks 0 --quick
  says '^rank +node +tp +dp +CPUs +device'
  says "^ +$((ranks - 1)) +$(uname -n) .* cpu$"
  says '^ok: same versions everywhere'
  grep -q GPU "$work/out" && bad "a check of GPUs on processors is called ok: $(cat "$work/out")"
done

doctor 4 0 --model "$model" --tp 2 --run-dir "$work/doctor"
for line in 'latency from rank 0, same node .* us' 'all-reduce of 16 MiB, tensor groups .* us' 'all-reduce of 4 KiB, all ranks .* us' \
  'memory of a rank .* GB/s' 'reading the model, each node .* GB/s' '64 KiB safe in the run directory .* ms'; do
  says "^$line"
done
[[ ! -e $work/doctor && -z $(find "$work" -name 'maniple-doctor*') ]] || bad "doctor left something behind: $(ls -A "$work")"

doctor 4 0 --model "$model" --tp 2 --pp 2
says '^4 KiB to the next stage .* us '
says '^1 MiB to the next stage .* us '

refused 'the ranks 0-1 on .* need .* for weights and 200 TiB for the KV cache' --kv-memory 100T
SLURM_HET_SIZE=2 refused 'this is a heterogeneous Slurm job of 2 components'
doctor 2 64 --tp 3
doctor 2 65 --model "$work/nowhere" --quick

say "doctor takes the line of generate, and checks what it does not measure"
printf '{"prompt":"a"}\n\n{"prompt":"b"}\n' | gzip >"$work/more.gz"
doctor 2 0 --quick --model "$model" --in "$work/in" "$work/more.gz" --out "$work/results" --max-model-len 1000 --block-size 16 --max-num-seqs 3 \
  --temperature 0.5 --seed 7 --stop-before 5s --shard 0/2 --kv-memory 1M
says '^ok: 3 requests in '
says '^needs of a rank: .* for weights; .* for the KV cache of a request of 1000 tokens, .* for 3$'
says '^note: --kv-memory has room for [0-9]+ tokens at once, and --max-model-len is 1000'
[[ ! -e $work/results ]] || bad "doctor wrote results"
printf '{"prompt":"a"}' | "$MANIPLE" doctor --quick --model "$model" --in - >"$work/out" 2>&1 || bad "doctor --in -: $(cat "$work/out")"
says '^not checked: --in -'
doctor 2 65 --quick --model "$model" --in "$work/nowhere.jsonl"
echo results >"$work/full"
doctor 2 65 --quick --model "$model" --in "$work/in" --out "$work/full"
grep -q 'is there already' "$work/err" || bad "an output that holds something: $(cat "$work/err")"
doctor 2 65 --quick --model "$model" --in "$work/in" --out "$work/nowhere/results"
doctor 1 64 --quick --model "$model" --in "$work/in" --out "$work/in" --overwrite
mkdir "$work/half"
cp "$model"/*.json "$work/half"
head -c 100000 "$model/model.safetensors" >"$work/half/model.safetensors"
doctor 2 65 --quick --model "$work/half"
grep -q 'is the file complete' "$work/err" || bad "half a file of weights: $(cat "$work/err")"
on 1 generate --model "$model" --in "$work/in" --run-dir "$work/run" --seed 7 --quiet || bad "no run to compare with"
doctor 2 0 --quick --model "$model" --in "$work/in" --run-dir "$work/run" --seed 7
doctor 2 65 --quick --model "$model" --in "$work/in" --run-dir "$work/run" --seed 8
grep -q 'seed: 7 there, 8 here' "$work/err" || bad "a run with another seed: $(cat "$work/err")"
printf 'no JSON\n' | gzip >"$work/bad.gz"
doctor 2 65 --quick --model "$model" --in "$work/bad.gz"
doctor 1 64 --quick --model "$model" --max-model-len 1000000
doctor 1 64 --quick --model "$model" --max-num-seqs 100 --max-num-batched-tokens 50
refused 'the KV cache has room for no block' --kv-memory 100

say "what generate refuses in a model's files, doctor refuses with the same message"
printf '{"messages":[{"role":"user","content":"a"}]}\n' >"$work/chat"
printf '{"prompt":"a"}\n' >"$work/text"
# both_refuse NAME INPUT: with the files of $work/NAME.
both_refuse() {
  doctor 1 65 --quick --model "$work/$1" --in "$2"
  head -1 "$work/err" >"$work/said"
  on 1 generate --model "$work/$1" --in "$2" >/dev/null 2>"$work/err" && bad "generate takes $1"
  grep -qxF -f "$work/said" "$work/err" || bad "$1: doctor says $(cat "$work/said"), generate $(cat "$work/err")"
}
# copy_of NAME: the model, without a chat template.
copy_of() { mkdir "$work/$1" && ln -s "$model"/* "$work/$1" && rm -f "$work/$1/tokenizer_config.json" && echo '{}' >"$work/$1/tokenizer_config.json"; }
for name in none tag mistake page number broken wordless; do copy_of "$name"; done
printf '{%% cache %%}{%% endcache %%}' >"$work/tag/chat_template.jinja"
printf '{%% for m in messages %%}' >"$work/mistake/chat_template.jinja"
printf '<!doctype html><html></html>' >"$work/page/chat_template.jinja"
for name in none tag mistake page; do both_refuse "$name" "$work/chat"; done
printf '{"chat_template": 7}' >"$work/number/tokenizer_config.json"
both_refuse number "$work/chat"
printf '{"chat_template": ' >"$work/broken/tokenizer_config.json"
both_refuse broken "$work/text"
rm "$work/wordless/tokenizer.json"
both_refuse wordless "$work/text"
doctor 1 65 --quick --model "$work/wordless" --prompt a
doctor 1 65 --quick --model "$work/none" --prompt a --chat
doctor 1 65 --quick --model "$model" --prompt $'\xff'
doctor 1 0 --quick --model "$model" --prompt a

say "what has no GPU has no check of GPUs in order"
doctor 1 69 --quick --backend cuda
says '^refused: (this build has no CUDA backend|no GPU is visible)'
! grep -q '^ok: .*GPU\|^ok: NCCL' "$work/out" || bad "a check of GPUs that are not there is ok: $(cat "$work/out")"

say "alone in an allocation of several tasks, and on processors that lack the path"
SLURM_NTASKS=8 SLURM_CPUS_PER_TASK=4 doctor 1 0 --quick
says '^warning: one rank runs alone in a Slurm allocation of 8 tasks'
says 'try: srun --mpi=pmix --ntasks=8 --cpus-per-task=4 maniple'
SLURM_NTASKS=8 on 1 generate --model "$model" --prompt a --max-tokens 2 >"$work/out" 2>&1
says 'warning: one rank runs alone in a Slurm allocation of 8 tasks'
SLURM_NTASKS=8 doctor 2 0 --quick
! grep -q 'runs alone' "$work/out" || bad "two ranks of mpirun: $(cat "$work/out")"
on 1 generate --model "$model" --in "$work/in" --run-dir "$work/path" --cpu-path portable 2>"$work/err" || bad "portable: $(cat "$work/err")"
sed -i 's/"portable"/"amx"/; s/"version": "[^"]*"/"version": "0.0.1"/' "$work/path/manifest.json"
on 1 generate --model "$model" --in "$work/in" --run-dir "$work/path" --cpu-path portable >"$work/out" 2>&1
(($? == 65)) || bad "a run of another version: $(cat "$work/out")"
says 'version: 0.0.1 there'
says 'try: give another --run-dir, or maniple 0.0.1, which began it \(module load\), and --cpu-path amx, as it was begun, on nodes that have it \(sbatch --constraint'

say "a run that was refused starts when the reason is gone"
on 2 generate --model "$model" --in "$work/in" --run-dir "$work/refused" 2>"$work/err" || bad "the same run again: $(cat "$work/err")"
grep -q 'preflight: [0-9]* checks ok, 0 warnings' "$work/err" || bad "generate says nothing of its checks: $(cat "$work/err")"
for table in "$work/err" "$work"/refused/jobs/*/topology.txt; do
  grep -Eq "^ +1 +$(uname -n) +0 +1 " "$table" || bad "no line of rank 1 in $table: $(cat "$table")"
done

if (($(nproc) >= 2)); then
  taskset -c 0 $MPIRUN -n 1 "$MANIPLE" doctor --quick >"$work/out" 2>"$work/err"
  says '^warning: 1 of 1 rank may use only 1 CPU'
fi
finish
