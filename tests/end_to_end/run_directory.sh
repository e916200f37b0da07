# A resumable run, killed at random moments and resumed on other layouts, has the bytes of an undisturbed run on one rank.
. "$HERE/lib.sh"
RANDOM=${SEED:-$$}
say "SEED=${SEED:-$$}"

# Requests of both shapes, sampled, of different lengths; two that only the model can refuse.
for ((i = 0; i < 180; i++)); do
  case $((i % 3)) in
    0) printf '{"id":%d,"prompt":"ROMEO %d:\\n","max_tokens":%d,"temperature":0.8}\n' $i $i $((20 + i * 7 % 90)) ;;
    1) printf '{"id":"own %d","tokens":[%d,7],"max_tokens":%d,"temperature":1}\n' $i $((i + 5)) $((i % 40 + 1)) ;;
    *) printf '{"custom_id":"c%d","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"JULIET %d:\\n","max_tokens":60,"logprobs":2}}\n' $i $i ;;
  esac
done >"$work/in"
printf '{"id":"bad","tokens":[5,2048]}\n{"custom_id":"bad too","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":""}}\n' >>"$work/in"
usual=(generate --model "$model" --in "$work/in" --seed 42 --max-num-seqs 6 --threads 1)

same_results() {  # DIR
  cmp "$work/whole/results.jsonl" "$1/results.jsonl" || bad "$1: other results"
  cmp "$work/whole/errors.jsonl" "$1/errors.jsonl" || bad "$1: other errors"
}
state() { cat "$work/$1/STATUS"; }

on 1 "${usual[@]}" --run-dir "$work/whole" 2>"$work/err"
(($? == 1)) || bad "an undisturbed run: $(cat "$work/err")"
[[ $(state whole) == "complete 1" && $(wc -l <"$work/whole/results.jsonl") == 180 && $(wc -l <"$work/whole/errors.jsonl") == 2 ]] ||
  bad "an undisturbed run: $(state whole), $(wc -l "$work"/whole/*.jsonl)"
on 1 "${usual[@]}" --out "$work/plain" 2>"$work/err"
cmp <(grep -v -e '"error":"' -e '"response":null' "$work/plain") "$work/whole/results.jsonl" || bad "--out has other bytes than --run-dir"

say "a finished run is a no-op"
on 2 "${usual[@]}" --tp 2 --run-dir "$work/whole" 2>"$work/err"
(($? == 1)) || bad "a finished run again: $?: $(cat "$work/err")"
grep -q 'is complete' "$work/err" && ! grep -q 'loaded' "$work/err" || bad "a finished run again: $(cat "$work/err")"
grep -q 'retry-errors' "$work/err" || bad "no word of the failed requests: $(cat "$work/err")"
mv "$work/whole/results.jsonl" "$work/moved"
on 1 "${usual[@]}" --run-dir "$work/whole" 2>"$work/err"
cmp "$work/moved" "$work/whole/results.jsonl" || bad "final files that somebody moved are not made again: $(cat "$work/err")"
on 1 "${usual[@]}" --run-dir "$work/whole" --fail-on 5% 2>"$work/err"
(($? == 0)) || bad "--fail-on 5% with 2 of 182 failed"
on 1 "${usual[@]}" --run-dir "$work/whole" --temperature 0.5 2>"$work/err"
(($? == 65)) && grep -q 'sampling: the model.s there, temperature 0.5 here' "$work/err" || bad "another run was not refused: $(cat "$work/err")"

# Kills three jobs, each on another layout, one rank or all of them; then lets one job finish.
# A request that runs alone at the fault is quarantined; --retry-errors runs it again.
midway=0 ROUNDS=${ROUNDS:-3}
kill_something() {
  local victims=("${ranks[@]}" "$job")
  if ((RANDOM % 2)); then kill -KILL "${victims[@]}" 2>/dev/null; else kill -KILL "${victims[RANDOM % ${#victims[@]}]}" 2>/dev/null; fi
}
for ((round = 1; round <= ROUNDS; round++)); do
  run=$work/killed$round
  for layout in "1 1" "2 2" "2 1" "4 2"; do
    [[ $(cat "$run/STATUS" 2>/dev/null) == complete* ]] && break
    read -r count tp <<<"$layout"
    start job$round "$count" "${usual[@]}" --tp "$tp" --run-dir "$run" --sync-interval 0.05s
    ranks=("$job")
    ((count == 1)) || find_ranks "$job" "$count"
    # Kills the first job after some work, the others at any moment.
    if ((count == 1)); then until_true 60 has_done "$run" $((RANDOM % 60 + 5)); else sleep "$((RANDOM % 2)).$((RANDOM % 9))"; fi
    done=$(done_of "$run")
    ((done > 0 && done < 182)) && midway=$((midway + 1))
    kill_something
    until_true 30 all_gone "$job" "${ranks[@]}" || bad "$run: ranks outlive the job: $(cat "$work/job$round.err")"
    wait "$job" 2>/dev/null
  done
  on 2 "${usual[@]}" --tp 2 --run-dir "$run" --retry-errors 2>"$work/err"
  (($? == 1)) || bad "the last job of $run: $(cat "$work/err")"
  same_results "$run"
  say "$(grep -o '[0-9]* of 182 requests w[a-z]* already done' "$work/err")"
done
say "$midway jobs were hit midway"
((midway >= ROUNDS)) || bad "not even the first jobs were hit midway"

say "SIGTERM: a planned stop"
start stopped 1 "${usual[@]}" --run-dir "$work/stopped" --backend reference
until_true 20 grep -q 'KV cache' "$work/stopped.err" && sleep 0.5 && kill -TERM "$job"
wait "$job"
(($? == 75)) && [[ $(state stopped) == "stopped 75" ]] || bad "SIGTERM: $(state stopped): $(cat "$work/stopped.err")"
"$MANIPLE" status "$work/stopped" --rc >"$work/out"
(($? == 75)) && grep -q 'stopped, [0-9]* of 182 requests done' "$work/out" || bad "status of a stopped run: $(cat "$work/out")"

grep -q 'sacct shows exit code 75 as FAILED' "$work/out" || bad "status of a stopped run: $(cat "$work/out")"
grep -q "exit 75; the same command again does the rest, into $work/stopped/results.jsonl" "$work/stopped.err" || bad "the last line: $(cat "$work/stopped.err")"

say "SIGTERM to mpirun, while it loads and while it serves: a planned stop, whatever exit code was asked for"
served() { grep -sq "$2" "$work/$1/jobs/$3/logs/rank-0001.log"; }
for moment in "1 load" "2 serving"; do
  start term 2 "${usual[@]}" --tp 2 --run-dir "$work/term" --backend reference --exit-zero-on-stop
  find_ranks "$job" 2 && until_true 20 served term "${moment#* }" "${moment% *}" && kill -TERM "$job"
  until_true 20 all_gone "$job" "${ranks[@]}" || bad "SIGTERM to mpirun: ranks are left"
  wait "$job" 2>/dev/null
  [[ $(state term) == "stopped 75" ]] || bad "SIGTERM to mpirun (${moment#* }): $(state term): $(cat "$work/term.err")"
  ! grep -q 'maniple: error' "$work/term.err" || bad "SIGTERM to mpirun (${moment#* }): $(cat "$work/term.err")"
done
start term 1 "${usual[@]}" --run-dir "$work/term" --backend reference --exit-zero-on-stop
until_true 20 grep -q 'KV cache' "$work/term.err" && sleep 0.3 && kill -TERM "$job"
wait "$job"
(($? == 0)) && [[ $(state term) == "stopped 75" ]] || bad "--exit-zero-on-stop: $(state term): $(cat "$work/term.err")"
"$MANIPLE" status --run-dir "$work/term" --rc --json >"$work/out"
(($? == 75)) && grep -q '"state":"stopped","exit_code":75,"requests":182,"done":[0-9]' "$work/out" || bad "status --json: $(cat "$work/out")"

say "two starts at once: one wins, the other names it"
for i in 1 2; do
  start twice$i 1 "${usual[@]}" --run-dir "$work/twice" --backend reference
  both[i]=$job
done
one_is_refused() { grep -sq 'is in use by process' "$work/twice1.err" "$work/twice2.err"; }
until_true 20 one_is_refused || bad "neither of two starts was refused: $(cat "$work"/twice[12].err)"
loser=$(grep -q 'is in use' "$work/twice1.err" && echo 1 || echo 2)
wait "${both[loser]}"
(($? == 69)) || bad "the second start was not refused with 69"
"$MANIPLE" status "$work/twice" --rc >"$work/out"
(($? == 75)) && grep -q 'running, .*heard of [0-3] s ago' "$work/out" || bad "status of a running job: $(cat "$work/out")"
kill -KILL "${both[3 - loser]}"
wait "${both[3 - loser]}" 2>/dev/null
"$MANIPLE" status "$work/twice" --rc >"$work/out"
(($? == 76)) && grep -q 'fault' "$work/out" || bad "status of a killed job: $(cat "$work/out")"
mkdir "$work/twice/jobs/9"
"$MANIPLE" status "$work/twice" --rc >"$work/out"
(($? == 76)) || bad "status, when the next job was killed before it said who it is: $(cat "$work/out")"
echo '{"rank":0,"host":"h","phase":"step","step":1,"what":"has died"}' >"$work/twice/jobs/9/fault.json"
"$MANIPLE" status "$work/twice" --rc >"$work/out"
(($? == 76)) && grep -q 'fault, .*rank 0 on h.* has died' "$work/out" || bad "status, when a fault was told but STATUS not written: $(cat "$work/out")"

say "a request that is running in three faults, the last time alone, ends in quarantine, and is taken up when asked for"
printf '{"tokens":[1],"max_tokens":2}\n{"id":"long","tokens":[2],"max_tokens":1500,"ignore_eos":true}\n{"tokens":[3],"max_tokens":2}\n' >"$work/poison"
poison=(generate --model "$model" --in "$work/poison" --seed 1 --backend reference --run-dir "$work/poisoned" --sync-interval 0.1s)
in_flight() { grep -q '"done":2,.*"running":1,' "$work/poisoned/progress.json" 2>/dev/null; }
for attempt in 1 2 3; do
  start poison$attempt 1 "${poison[@]}"
  sleep 0.2
  until_true 20 in_flight || bad "attempt $attempt: the long request does not run: $(cat "$work/poison$attempt.err")"
  rm "$work/poisoned/progress.json"
  kill -KILL "$job"
  wait "$job" 2>/dev/null
done
on 1 "${poison[@]}" 2>"$work/err"
(($? == 1)) && grep -q '^{"id":"long","error":"quarantined: ' "$work/poisoned/errors.jsonl" || bad "no quarantine: $(cat "$work/err" "$work"/poisoned/*.jsonl)"
[[ $(wc -l <"$work/poisoned/results.jsonl") == 2 ]] || bad "others were lost: $(cat "$work/poisoned/results.jsonl")"
on 1 "${poison[@]}" --retry-errors 2>"$work/err" || bad "--retry-errors: $(cat "$work/err")"
[[ $(wc -l <"$work/poisoned/results.jsonl") == 3 && ! -e $work/poisoned/errors.jsonl ]] || bad "--retry-errors: $(ls "$work/poisoned")"

say "the end of a whole job, or of its launcher, makes no request suspect"
for victims in job launcher; do
  for attempt in 1 2 3; do
    start "$victims$attempt" 2 "${poison[@]/poisoned/$victims}" --tp 2
    find_ranks "$job" 2 && until_true 20 grep -sq '"done":2,.*"running":1,' "$work/$victims/progress.json" || bad "$victims $attempt: $(cat "$work/$victims$attempt.err")"
    rm "$work/$victims/progress.json"
    if [[ $victims == job ]]; then kill -KILL "$job" "${ranks[@]}"; else kill -KILL "$job"; fi
    until_true 20 all_gone "$job" "${ranks[@]}" || bad "$victims $attempt: ranks outlive the job"
    wait "$job" 2>/dev/null
  done
  on 1 "${poison[@]/poisoned/$victims}" 2>"$work/err" || bad "$victims: $(cat "$work/err" "$work/$victims/errors.jsonl")"
  [[ $(wc -l <"$work/$victims/results.jsonl") == 3 ]] || bad "$victims: $(cat "$work/$victims/results.jsonl")"
done

say "a full disk"
(ulimit -f 8 && on 1 "${usual[@]}" --run-dir "$work/full" 2>"$work/err")
(($? == 76)) && grep -q 'cannot write .*journal: File too large' "$work/err" && grep -q 'make room' "$work/err" || bad "a full disk: $(cat "$work/err")"
[[ $(state full) == "fault 76" ]] || bad "a full disk: $(state full)"
on 2 "${usual[@]}" --run-dir "$work/full" 2>"$work/err"
grep -q '[1-9][0-9]* of 182 requests w[a-z]* already done' "$work/err" || bad "a full disk lost what was written: $(cat "$work/err")"
same_results "$work/full"

say "a journal that lost its end"
cp -r "$work/full" "$work/torn"
rm "$work"/torn/{STATUS,results.jsonl}
for journal in "$work"/torn/jobs/*/journal; do truncate -s $(($(stat -c %s "$journal") * (RANDOM % 90 + 5) / 100)) "$journal"; done
on 2 "${usual[@]}" --run-dir "$work/torn" 2>"$work/err"
grep -q 'torn or damaged' "$work/err" || say "(cut between two records)"
same_results "$work/torn"

say "shards, merged"
for i in 0 1 2; do
  on 1 "${usual[@]}" --shard $i/3 --run-dir "$work/shard.$i" --fail-on none 2>"$work/err" || bad "shard $i: $(cat "$work/err")"
done
"$MANIPLE" merge "$work/merged" "$work"/shard.* 2>"$work/err" || bad "merge: $(cat "$work/err")"
cmp "$work/merged" "$work/whole/results.jsonl" && cmp "$work/merged.errors" "$work/whole/errors.jsonl" || bad "merged shards: other bytes"
"$MANIPLE" merge --overwrite "$work/merged" "$work"/shard.[01] 2>"$work/err"
(($? == 65)) && grep -q 'shard 2/3 is missing' "$work/err" || bad "a missing shard: $(cat "$work/err")"
"$MANIPLE" merge --overwrite "$work/merged" "$work/stopped" 2>"$work/err"
(($? == 65)) && grep -q 'is not complete' "$work/err" || bad "an incomplete shard: $(cat "$work/err")"

say "shards that are given no seed, merged"
head -40 "$work/in" >"$work/first"
unseeded=(generate --model "$model" --in "$work/first" --threads 1)
for i in 0 1; do
  on 1 "${unseeded[@]}" --shard $i/2 --run-dir "$work/unseeded.$i" 2>"$work/err" || bad "shard $i without a seed: $(cat "$work/err")"
done
grep -q 'seed [0-9]* (from the input)' "$work/err" || bad "a shard without a seed: $(cat "$work/err")"
"$MANIPLE" merge --overwrite "$work/merged" "$work"/unseeded.* 2>"$work/err" || bad "merge: $(cat "$work/err")"
seed=$(sed -n 's/.*"seed": "\([0-9]*\)".*/\1/p' "$work/unseeded.0/manifest.json")
on 1 "${unseeded[@]}" --seed "$seed" --out "$work/out" --overwrite 2>"$work/err"
cmp "$work/merged" "$work/out" || bad "shards without a seed: other bytes than with $seed"

say "run directories of 0.3.0 are read, and not continued"
cp -r "$DATA/run-0.3.0" "$work/old"
"$MANIPLE" status "$work/old/run.0" >"$work/out" 2>&1 && grep -q 'complete' "$work/out" || bad "status of 0.3.0: $(cat "$work/out")"
"$MANIPLE" merge "$work/old/merged" "$work"/old/run.? 2>"$work/err" && (($(wc -l <"$work/old/merged") == 40)) || bad "merge of 0.3.0: $(cat "$work/err")"
reported "20, 0 failed|2586 output tokens" "$work/old/run.0"
reported "2586" --steps "$work/old/run.0"
on 1 generate --model "$model" --in "$work/old/in.jsonl" --run-dir "$work/old/run.0" --shard 0/2 --seed 5 >"$work/out" 2>"$work/err"
refused $? 65 "version: 0.3.0 there, |or maniple 0.3.0, which began it" "a run directory of 0.3.0"

say "several files, one of them packed, and stdin"
tail -n +41 "$work/in" | gzip >"$work/second.gz"
on 1 generate --model "$model" --in "$work/first" "$work/second.gz" --seed 42 --out "$work/out" --overwrite 2>"$work/err"
cmp "$work/out" "$work/plain" || bad "two files: other results: $(cat "$work/err")"
"$MANIPLE" generate --model "$model" --in - --seed 42 --out "$work/out" --overwrite <"$work/in" 2>"$work/err"
cmp "$work/out" "$work/plain" || bad "stdin: other results: $(cat "$work/err")"
finish
