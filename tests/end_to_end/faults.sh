# A rank that dies or stands still takes the job down with a message; Ctrl-C keeps what has finished.
. "$HERE/lib.sh"

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
# Whatever happened, the file holds whole lines: those that had finished, in order.
kept() {
  cmp <(head -8 "$work/$1.out") "$work/short" || bad "$1: finished results are missing or in another order"
  [[ -z $(tail -n +9 "$work/$1.out" | grep -v '}}$') && -z $(tail -c 1 "$work/$1.out") ]] || bad "$1: a partial line"
}

for rank in 0 1 2 3; do
  job "start$rank" 4 2
  find_ranks "$job" 4 && kill -KILL "${ranks[rank]}"
  ended "start$rank" 15 "1 76 137"
done
for rank in 0 1 2 3; do
  job "killed$rank" 4 2
  find_ranks "$job" 4 && decoding "killed$rank" && kill -KILL "${ranks[rank]}"
  ended "killed$rank" 15 "1 76 137"
  kept "killed$rank"
done

# A stopped rank, in two jobs at once, as this takes the deadline's 20 s. It dies of SIGKILL all the same, so that the launcher's abort reaches it.
declare -A jobs ranks_of_job
for rank in 0 2; do
  name=stopped$rank
  job $name 4 2
  find_ranks "$job" 4 && decoding $name && sleep 5 && kill -STOP "${ranks[rank]}"
  jobs[$rank]=$job ranks_of_job[$rank]="${ranks[*]}"
done
for rank in 0 2; do
  name=stopped$rank job=${jobs[$rank]}
  read -ra ranks <<<"${ranks_of_job[$rank]}"
  ended $name 40 "1 76 137"
  grep -Eq "rank $rank on $(uname -n) has not been heard of for [0-9]+ s \(last seen in a step, step [1-9]" "$work/$name.err" ||
    bad "$name: the message does not say which rank, where and when: $(cat "$work/$name.err")"
  (($(grep -c 'maniple: error:' "$work/$name.err") == 1)) || bad "$name: not exactly one message: $(cat "$work/$name.err")"
  kept $name
done

# One process without mpirun, then rank 0 alone: the launcher passes its exit code on.
for signal in INT TERM; do
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

  # mpirun answers by ending all ranks, with SIGTERM and soon with SIGKILL: only what is in the file counts.
  job "mpirun-$signal" 4 2
  find_ranks "$job" 4 && decoding "mpirun-$signal" && kill -$signal "$job"
  ended "mpirun-$signal" 15 "1 $code 137"
  kept "mpirun-$signal"
done
finish
