# Many ranks on few cores: waiting ranks do not spin, idle ranks use almost no CPU time, and two jobs do not disturb each other.
. "$HERE/lib.sh"

usual=(generate --model "$model" --in "$HERE/prompts.jsonl" --seed 42)
on 1 "${usual[@]}" >"$work/expected" 2>"$work/err"
(($? == 1)) || bad "one rank: $(cat "$work/err")"

# The bound is far above the time of the slowest machine, and far below that of ranks that spin while they wait (minutes).
start=$SECONDS
start eight 8 "${usual[@]}" --tp 8 --out "$work/eight"
find_ranks "$job" 8
until_true 90 gone "$job" || bad "8 ranks on $(nproc) cores did not finish in 90 s: $(cat "$work/eight.err")"
cmp "$work/expected" "$work/eight" || bad "8 ranks: other results"
say "8 ranks on $(nproc) cores: $((SECONDS - start)) s"

say "two jobs at once"
start first 4 "${usual[@]}" --tp 2 --out "$work/first"
first=$job
start second 4 "${usual[@]}" --tp 4 --block-size 16 --out "$work/second"
until_true 120 all_gone "$first" "$job" || bad "two jobs: not ended after 120 s"
cmp "$work/expected" "$work/first" || bad "the first of two jobs: $(cat "$work/first.err")"
cmp "$work/expected" "$work/second" || bad "the second of two jobs: $(cat "$work/second.err")"

# One of 4 replicas has a request that decodes for a minute. It is replica 0, so the other three ranks are idle.
ticks_of() {  # user and system time of a process, all its threads
  local stat fields
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || { echo 0; return; }
  read -ra fields <<<"${stat##*) }"
  echo $((fields[11] + fields[12]))
}
serving() { grep -q 'KV cache' "$work/idle.err"; }
mkdir "$work/deep"
sed 's/"num_hidden_layers": 5/"num_hidden_layers": 20/' "$model/config.json" >"$work/deep/config.json"
printf '{"tokens":[1],"max_tokens":4000,"ignore_eos":true}\n' >"$work/in"
seconds=4
start idle 4 generate --model "$work/deep" --load random --backend reference --in "$work/in" --out "$work/idle.out"
find_ranks "$job" 4
until_true 60 serving || bad "not serving after 60 s: $(cat "$work/idle.err")"
sleep 1
for rank in 0 1 2 3; do before[rank]=$(ticks_of "${ranks[rank]}"); done
sleep $seconds
for rank in 0 1 2 3; do used[rank]=$(($(ticks_of "${ranks[rank]}") - before[rank])); done
gone "$job" && bad "the job ended while it was measured: $(cat "$work/idle.err")"
for rank in 0 1 2 3; do
  share=$((1000 * used[rank] / (seconds * $(getconf CLK_TCK))))
  say "rank $rank: $share/1000 of a core"
  ((rank == 0 || share < 50)) || bad "rank $rank is idle, but uses $share/1000 of a core"
done
((used[0] > used[1] + used[2] + used[3])) || bad "rank 0 works no more than the idle ranks: the request is somewhere else"
kill -TERM "$job"
wait "$job" 2>/dev/null
finish
