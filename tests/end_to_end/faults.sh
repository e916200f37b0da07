# A rank that dies or hangs ends the job with a message that names the rank. A suspended job continues. Ctrl-C keeps the finished results.
# Half of the ranks and places have their fault today.
. "$HERE/lib.sh"
say_cover

# Short requests that soon finish, and long ones that keep the (slow) reference backend busy for a minute or more.
for i in 1 2 3 4 5 6 7 8; do
  printf '{"id":%d,"prompt":"ROMEO:\\n","max_tokens":4,"seed":1}\n' $i
done >"$work/in"
for i in 9 10 11 12 13 14 15 16; do
  printf '{"id":%d,"prompt":"JULIET:\\n","max_tokens":4000,"seed":1,"ignore_eos":true}\n' $i
done >>"$work/in"
on 1 generate --model "$model" --in <(head -8 "$work/in") --seed 1 --backend reference --out "$work/short" 2>"$work/err" || bad "$(cat "$work/err")"

job() { start "$1" "$2" generate --model "$model" --tp "$3" --in "$work/in" --out "$work/$1.out" --seed 1 --backend reference; }  # NAME RANKS TP
decodes() { [[ -f $work/$1.out ]] && (($(wc -l <"$work/$1.out") >= 8)); }
decoding() { until_true 60 decodes "$1" || bad "$1: no results after 60 s: $(cat "$work/$1.err")"; }

# ended NAME SECONDS CODES: the launcher and all ranks, in time, with one of these exit codes.
ended() {
  local name=$1 start=$SECONDS rc
  until_true "$2" all_gone "$job" "${ranks[@]}" || bad "$name: not ended after $2 s: $(cat "$work/$name.err")"
  kill -KILL "$job" 2>/dev/null
  wait "$job" 2>/dev/null
  rc=$?
  [[ " $3 " == *" $rc "* ]] || bad "$name: exit code $rc, not one of: $3: $(cat "$work/$name.err")"
  say "$name: ended after $((SECONDS - start)) s with $rc"
}
# After every fault the file holds whole lines: the finished requests, in order.
kept() {
  cmp <(head -8 "$work/$1.out") "$work/short" || bad "$1: finished results are missing or in another order"
  [[ -z $(tail -n +9 "$work/$1.out" | grep -v '}}$') && -z $(tail -c 1 "$work/$1.out") ]] || bad "$1: a partial line"
}

for rank in 0 1 2 3; do
  today 2 || continue
  job "start$rank" 4 2
  find_ranks "$job" 4 && kill -KILL "${ranks[rank]}"
  ended "start$rank" 15 "1 76 137"
done
# With a run directory fault.json records the rank that died or hung, and the next job completes the run.
for ((i = 0; i < 16; i++)); do
  printf '{"id":%d,"prompt":"ROMEO %d:\\n","max_tokens":%d,"seed":%d,"ignore_eos":true}\n' $i $i $((100 + i * 6)) $i
done >"$work/moderate"
moderate=(generate --model "$model" --in "$work/moderate" --seed 1 --backend reference --threads 1)
on 1 "${moderate[@]}" --run-dir "$work/expected" 2>"$work/err" || bad "$(cat "$work/err")"
run() { start "$1" 4 "${moderate[@]}" --tp 2 --run-dir "$work/$1" --deadline 9s "${@:2}"; }
serves() { grep -q serving "$work/$1/jobs/1/logs/rank-0003.log" 2>/dev/null; }
serving() { until_true 20 serves "$1" || bad "$1: not serving: $(cat "$work/$1.err")"; }
# in_record NAME RANK: fault.json names the rank, and there is one message.
in_record() {
  local record=$work/$1/jobs/1/fault.json
  grep -q "^{\"rank\":$2,\"host\":\"$(uname -n)\",\"gpu\":\"\",\"phase\":\"\(step\|idle\)\",\"step\":[1-9]" "$record" ||
    bad "$1: the record does not say which rank, where and when: $(cat "$record" "$work/$1.err")"
  [[ $(cat "$work/$1/STATUS") == "fault 76" ]] || bad "$1: STATUS is $(cat "$work/$1/STATUS")"
  (($(grep -c 'maniple: error:' "$work/$1.err") == 1)) || bad "$1: not exactly one message: $(cat "$work/$1.err")"
  grep -q "maniple: error: rank $2 on $(uname -n) has" "$work/$1.err" || bad "$1: names another rank: $(cat "$work/$1.err")"
  "$MANIPLE" status "$work/$1" --rc >"$work/out"
  (($? == 76)) && grep -q "fault, .*; rank $2 on" "$work/out" || bad "$1: status: $(cat "$work/out")"
}
resumes() {
  on 1 "${moderate[@]}" --run-dir "$work/$1" 2>"$work/err" || bad "$1, again: $(cat "$work/err")"
  cmp "$work/expected/results.jsonl" "$work/$1/results.jsonl" || bad "$1: other results than those of an undisturbed run"
}

for rank in 0 1 2 3; do
  today 2 || continue
  run "killed$rank" --all-reduce $( ((rank % 2)) && echo shared || echo messages)
  find_ranks "$job" 4 && serving "killed$rank" && sleep 0.5 && kill -KILL "${ranks[rank]}"
  ended "killed$rank" 15 "1 76 137"
  in_record "killed$rank" $rank
  resumes "killed$rank"
done

# A stopped rank still dies of SIGKILL, so the launcher's abort reaches it.
for rank in 0 2; do
  today 2 || continue
  run "stopped$rank" --all-reduce $( ((rank == 2)) && echo shared || echo auto)
  find_ranks "$job" 4 && serving "stopped$rank" && sleep 0.5 && kill -STOP "${ranks[rank]}"
  ended "stopped$rank" 12 "1 76 137"
  in_record "stopped$rank" $rank
  grep -Eq 'has not been heard of for [0-9]+ s \(last seen in (step [1-9]|phase idle)' "$work/stopped$rank.err" || bad "stopped$rank: $(cat "$work/stopped$rank.err")"
  resumes "stopped$rank"
done

say "ranks of a pipeline that die or stop are named, and another grid does the rest"
for fault in "KILL 1" "KILL 2" "STOP 0" "STOP 3"; do
  today 2 || continue
  read -r signal rank <<<"$fault"
  name=pipeline$rank
  run "$name" --pp 2
  find_ranks "$job" 4 && serving "$name" && sleep 0.5 && kill "-$signal" "${ranks[rank]}"
  ended "$name" 15 "1 76 137"
  in_record "$name" "$rank"
  resumes "$name"
done

say "a job that is suspended for longer than any deadline goes on"
run suspended
find_ranks "$job" 4 && serving suspended && sleep 0.5 && kill -STOP "${ranks[@]}" && sleep 10 && kill -CONT "${ranks[@]}"
ended suspended 120 0
cmp "$work/expected/results.jsonl" "$work/suspended/results.jsonl" || bad "suspended: other results: $(cat "$work/suspended.err")"
[[ ! -e $work/suspended/jobs/1/fault.json ]] || bad "suspended: a fault: $(cat "$work/suspended/jobs/1/fault.json")"
for rank in 0 1 2 3; do
  grep -q 'start: rank' "$work/suspended/jobs/1/logs/rank-000$rank.log" && grep -q 'end: load' "$work/suspended/jobs/1/logs/rank-000$rank.log" || bad "the log of rank $rank"
done

say "a rank that hangs at the end of MPI, with all work done, is named too, and ends"
for place in "1 before" "0 behind" "3 behind"; do
  today 2 || continue
  name=late-${place/ /-}
  words="rank ${place% *} on $(uname -n) does not come to its end"
  [[ $place == *behind ]] || words="MPI does not come to its end"
  MPIRUN="$MPIRUN -x LD_PRELOAD=$STOPPER" STOP_AT_END=$place run "$name"
  find_ranks "$job" 4
  ended "$name" 60 76
  grep -q "maniple: error: $words" "$work/$name.err" || bad "$name: $(cat "$work/$name.err")"
  (($(grep -c 'maniple: error:' "$work/$name.err") == 1)) || bad "$name: not exactly one message: $(cat "$work/$name.err")"
  [[ $(cat "$work/$name/STATUS") == "complete 0" ]] || bad "$name: STATUS is $(cat "$work/$name/STATUS")"
done

# Without free memory in /dev/shm the first access to a page there would end the process with SIGBUS.
full=(unshare --mount sh -c 'mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero >/dev/shm/full && exec "$@"' sh)
if "${full[@]}" true 2>/dev/null; then
  "${full[@]}" "$MANIPLE" generate --model "$model" --prompt ROMEO: --max-tokens 4 --seed 1 >/dev/null 2>"$work/err" || bad "a full /dev/shm: $(cat "$work/err")"
else
  say "a full /dev/shm: skipped, no right to mount one here"
fi

# Without a run directory the file holds the finished results.
job killed-out 4 2
find_ranks "$job" 4 && decoding killed-out && kill -KILL "${ranks[1]}"
ended killed-out 15 "1 76 137"
kept killed-out

# One process without mpirun, then rank 0 alone: the launcher passes its exit code on.
for signal in INT TERM; do
  today 2 || continue
  code=$([[ $signal == INT ]] && echo 130 || echo 143)
  job "alone-$signal" 1 1
  ranks=()
  decoding "alone-$signal" && kill -$signal "$job"
  ended "alone-$signal" 10 $code
  kept "alone-$signal"
  grep -q 'before the interruption' "$work/alone-$signal.err" || bad "no summary after SIG$signal"

  job "rank0-$signal" 4 2
  find_ranks "$job" 4 && decoding "rank0-$signal" && kill -$signal "${ranks[0]}"
  ended "rank0-$signal" 10 $code
  kept "rank0-$signal"

  # mpirun ends all ranks with SIGTERM and soon with SIGKILL: only the content of the file counts.
  job "mpirun-$signal" 4 2
  find_ranks "$job" 4 && decoding "mpirun-$signal" && kill -$signal "$job"
  ended "mpirun-$signal" 15 "1 $code 137"
  kept "mpirun-$signal"
done
finish
