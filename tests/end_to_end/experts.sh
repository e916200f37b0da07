# Models with experts: the same bytes on every grid, also after kill -9, from both forms on disk; who has what; what is refused.
. "$HERE/lib.sh"

for ((i = 0; i < 24; i++)); do
  tokens=$((i + 1))
  for ((t = 0; t < i * 7 % 60; t++)); do tokens+=,$(((i * 31 + t * 17) % 380)); done
  printf '{"id":%d,"tokens":[%s],"temperature":%s,"max_tokens":%d,"logprobs":1}\n' $i "$tokens" $((i % 2)).5 $((i % 9 + 8))
done >"$work/in"

for name in tiny-qwen3-moe tiny-mixtral; do
  model=$DATA/models/$name
  usual=(generate --model "$model" --in "$work/in" --seed 42 --threads 1)
  on 1 "${usual[@]}" >"$work/one" 2>"$work/err" || bad "$name: $(cat "$work/err")"
  (($(wc -l <"$work/one") == 24)) || bad "not one line for each request"
  for grid in "8 --tp 4 --ep 2" "8 --tp 8 --ep 8" "8 --tp 2 --ep 2" "4 --tp 4 --ep 1 --max-num-batched-tokens 64 --max-num-seqs 5" "4 --tp 2 --pp 2"; do
    say "same bytes: $name, $grid"
    on ${grid%% *} "${usual[@]}" ${grid#* } >"$work/out" 2>"$work/err" || bad "$grid: $(cat "$work/err")"
    cmp "$work/one" "$work/out" || bad "$name, $grid: other results than one rank's"
    grep -q 'reproducibility: grid' "$work/err" || bad "$grid: $(cat "$work/err")"
  done
  grep -q '4 ranks = tensor 2 (expert 2) x pipeline 2 x data 1' "$work/err" || bad "the banner does not show experts: $(cat "$work/err")"
done

say "killed by kill -9, then finished on another grid"
model=$DATA/models/tiny-qwen3-moe
usual=(generate --model "$model" --in "$work/in" --seed 42 --threads 1 --backend reference)
on 1 "${usual[@]}" >"$work/one" 2>"$work/err" || bad "one rank: $(cat "$work/err")"
start killed 8 "${usual[@]}" --run-dir "$work/run" --tp 4 --ep 4 --pp 2 --max-num-seqs 2 --sync-interval 0.05s
find_ranks "$job" 8
until_true 60 has_done "$work/run" 5 || bad "no work: $(cat "$work/killed.err")"
kill -KILL "${ranks[@]}" "$job"
until_true 20 all_gone "$job" "${ranks[@]}" || bad "ranks outlive the job"
wait "$job" 2>/dev/null
(($(done_of "$work/run") < 24)) || bad "the job was done before it was killed"
[[ -e $work/run/experts.json ]] && bad "experts.json of a killed job"
on 2 "${usual[@]}" --run-dir "$work/run" --tp 2 2>"$work/err" || bad "the second job: $(cat "$work/err")"
cmp "$work/one" "$work/run/results.jsonl" || bad "other results than one rank's"

say "the record: axes, load of the experts"
grep -rqs '"expert":2' "$work/run" || bad "no expert axis in the record: $(ls -R "$work/run")"
grep -rqsE '"experts":\[\{"layer":0,"hottest":0\.[0-9]+,"imbalance":[1-8]\.[0-9]+,"unused":[0-9]' "$work/run" || bad "no load of experts in the record"

layers='\[(\{"layer":[0-2],"hottest":0\.[0-9]+,"imbalance":[1-8]\.[0-9]+,"unused":[0-8]\},?){3}\]'
grep -qE "^$layers\$" "$work/run/experts.json" || bad "no experts.json: $(cat "$work/run/experts.json")"
"$MANIPLE" status "$work/run" | grep -qE 'complete.*; experts: at most [1-8]\.[0-9] times the mean \(layer [0-2]\), [0-9]+ unused' || bad "status: $("$MANIPLE" status "$work/run")"
"$MANIPLE" status --json "$work/run" | grep -qE "\"experts\":$layers" || bad "status --json has no experts"

say "stopped, then finished: experts.json of each job"
sed 's/"max_tokens":[0-9]*/"max_tokens":200,"ignore_eos":true/' "$work/in" >"$work/long"
usual=(generate --model "$model" --in "$work/long" --seed 42 --threads 1 --backend reference)
start stopped 1 "${usual[@]}" --run-dir "$work/stopped" --max-num-seqs 2 --sync-interval 0.2s
until_true 60 has_done "$work/stopped" 2 && kill -TERM "$job"
wait "$job"
(($? == 75)) && grep -qE "^$layers\$" "$work/stopped/experts.json" || bad "a stopped job: $(ls "$work/stopped"): $(cat "$work/stopped.err")"
"$MANIPLE" status "$work/stopped" | grep -q 'stopped.*; experts: at most' || bad "status: $("$MANIPLE" status "$work/stopped")"
mv "$work/stopped/experts.json" "$work/first"
on 1 "${usual[@]}" --run-dir "$work/stopped" 2>"$work/err" || bad "after the stop: $(cat "$work/err")"
grep -qE "^$layers\$" "$work/stopped/experts.json" || bad "no experts.json of the second job"
cmp -s "$work/first" "$work/stopped/experts.json" && bad "experts.json is of the first job"

say "doctor"
on 4 doctor --model "$model" --tp 4 --ep 2 --quick >"$work/out" 2>"$work/err" || bad "doctor: $(cat "$work/err")"
grep -q '^rank .* tp  ep  dp' "$work/out" || bad "doctor does not show who has what: $(cat "$work/out")"

say "what is refused"
mkdir "$work/twelve"
sed 's/"num_local_experts": 8/"num_local_experts": 12/' "$model/config.json" >"$work/twelve/config.json"
expect() {
  local ranks=$1 code=$2 words=$3
  shift 3
  on "$ranks" "$@" >"$work/out" 2>"$work/err"
  refused $? "$code" "$words" "$ranks ranks $*"
}
expect 4 64 "--ep 3 does not divide --tp 4; use --ep 1, 2 or 4" "${usual[@]}" --ep 3 --tp 4
expect 8 65 "experts (12) do not divide by --ep 8; use --ep 1, 2 or 4" generate --model "$work/twelve" --in "$work/in" --tp 8 --ep 8
expect 2 65 "--ep 2 is for models with experts, and Qwen3ForCausalLM has none" generate --model "$DATA/models/tiny-qwen3" --in "$work/in" --tp 2 --ep 2
expect 2 65 "--ep 2 is for models with experts, and Qwen3ForCausalLM has none" generate --model "$DATA/models/tiny-qwen3" --in "$work/in" --ep 2
expect 4 65 "--tp 4 --ep 1 cuts an expert's blocks of 128 inputs (it has 256), which are rounded with one scale; use --ep 2 or 4" generate --model "$DATA/models/q-moe-fp8-block" --in "$work/in" --tp 4 --ep 1
finish
