#!/usr/bin/env bash
# Chaos: random faults in resumable runs, a new run each round. No request may be lost or done twice, no fault late or unreported (README.md).
#   tests/chaos/run.sh [--seed S] [--rounds N | --minutes M] [--only "KIND..."] [--slurm]
# Exit code 1 if any round failed: its line gives the command that repeats it, and its folder is kept.
here=$(cd "$(dirname "$0")" && pwd)
seed=$RANDOM rounds=0 minutes=10 kinds='' slurm=''
arguments=("$@")
while (($# > 0)); do
  case $1 in
    --seed) seed=$2 && shift 2 ;;
    --rounds) rounds=$2 && shift 2 ;;
    --minutes) minutes=$2 && shift 2 ;;
    --only) kinds=$2 && shift 2 ;;
    --slurm) slurm=yes && shift ;;
    *) sed -n 3p "$0" >&2 && exit 64 ;;
  esac
done

# Runs in its own mount namespace, where /mnt is a small disk; with --slurm also on the controller of a virtual cluster.
testbed=$here/../../cluster/testbed
if [[ -z ${CHAOS_DISK:-} ]]; then
  own=(unshare --mount sh -c 'mount -t tmpfs -o size=3m tmpfs /mnt && exec "$@"' sh)
  export CHAOS_DISK=/mnt
  "${own[@]}" true 2>/dev/null || { own=() && CHAOS_DISK=none; }
  exec "${own[@]}" bash "$0" "${arguments[@]}"
fi
if [[ -n $slurm && -z ${CHAOS_CLUSTER:-} ]]; then
  export CHAOS_CLUSTER=yes TESTBED=${TMPDIR:-/tmp}/maniple-chaos.$$
  "$testbed/up" 2 || exit
  trap '"$testbed/down"' EXIT
  "$testbed/run" bash "$0" "${arguments[@]}"
  exit
fi

MANIPLE=$(realpath "${MANIPLE:-$here/../../build/release/maniple}")
[[ -x ${MANIPLE%/*}/journal_records ]] || { echo "chaos: ${MANIPLE%/*}/journal_records is missing; build all targets first" >&2 && exit 69; }
DATA=${DATA:-$here/../data}
MPIRUN=${MPIRUN:-mpirun --oversubscribe --allow-run-as-root --bind-to none --mca btl self,vader --mca mpi_yield_when_idle 1}
[[ -z $slurm ]] || MPIRUN="srun --mpi=pmix --nodes=2 --cpus-per-task=1 --kill-on-bad-exit=1 --wait=10"
. "$here/../end_to_end/lib.sh"

# Requests of both shapes, sampled, of different lengths; every hundredth fails on purpose.
requests=400
for ((i = 0; i < requests; i++)); do
  case $((i % 100)),$((i % 2)) in
    50,*) printf '{"id":%d,"tokens":[5,2048]}\n' $i ;;
    *,0) printf '{"custom_id":"c%d","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"JULIET:\\n","max_tokens":%d}}\n' $i $((i * 5 % 40 + 1)) ;;
    *) printf '{"id":%d,"prompt":"ROMEO %d:\\n","max_tokens":%d,"temperature":0.8}\n' $i $i $((i * 7 % 50 + 1)) ;;
  esac
done >"$work/shakespeare.in"
for ((i = 0; i < requests; i++)); do
  printf '{"id":%d,"tokens":[%d,%d],"max_tokens":%d,"temperature":0.8}\n' $i $((i % 400)) $((i % 100 == 50 ? 2048 : i % 7)) $((i * 7 % 90 + 1))
done >"$work/tiny-qwen3-moe.in"
# The round's model is one of these two; $undisturbed holds its results.
of_model() {
  undisturbed=$work/$1
  command=(generate --model "$DATA/models/$1" --in "$work/$1.in" --seed 42 --max-num-seqs 4 --threads 1 --fail-on none --allow-cross-node-tp
    --sync-interval 0.2s --takeover-after 5s --deadline 9s --start-deadline 8s)
}
for name in shakespeare tiny-qwen3-moe; do
  of_model $name
  on 1 "${command[@]}" --run-dir "$undisturbed" 2>"$work/err" || { cat "$work/err" && exit 1; }
done

# begin [LEAST_RANKS]: starts a job of the round's run on a random layout. $job is its process, $log its output.
layouts=("1 1 1 1" "2 1 1 1" "2 2 1 1" "4 2 1 1" "2 1 2 1" "4 2 2 1" "3 1 3 1")
[[ -n $slurm ]] || layouts+=("8 8 1 2")
begin() {
  local tp pp cp
  while read -r count tp pp cp <<<"${layouts[RANDOM % ${#layouts[@]}]}" && ((count < ${1:-1})); do :; done
  log=$round/$((++jobs)).err
  before=$(compgen -G "$run/jobs/*" | wc -l)
  CHAOS_JOB=$log start "round/$jobs" "$count" "${command[@]}" --tp "$tp" --pp "$pp" --cp "$cp" --run-dir "$run"
  ranks=()
}
# lib.sh looks for children of mpirun. Here a variable of the environment, which srun passes on too, identifies the job.
ranks_of() {
  local file
  for file in $(grep -slz "^CHAOS_JOB=$log\$" /proc/[0-9]*/environ); do
    sed -zEn "s|^(OMPI_COMM_WORLD_RANK\|SLURM_PROCID)=(.*)|\2 ${file//[^0-9]/}|p" "$file" 2>/dev/null | tr '\0' '\n'
  done | sort -n | sed 's/.* //'
}
begin_ranks() {  # begin, then wait for $ranks
  begin "$@"
  if ((count == 1)); then ranks=("$job"); else find_ranks "$job" "$count"; fi
}

await() { until "$@" || gone "$job"; do sleep 0.005; done; }
at_work() { (($(compgen -G "$run/jobs/*" | wc -l) > before)); }
finishing() { compgen -G "$run/results.jsonl*" >/dev/null; }
# Faults strike early in a start, when the ranks find each other, when they load, when they write the final files; mostly in between.
moment() {
  local done=$(done_of "$run")
  case $((RANDOM % 6)) in
    0) sleep 0.$((RANDOM % 3)) ;;
    1) await at_work ;;
    2) await finishing ;;
    *) await has_done "$run" $((done + RANDOM % (requests - done + 1))) ;;
  esac
}
later_moment() { await at_work && moment; }  # once the ranks have found each other

strike() {  # SIGNAL PROCESS...
  struck_at=${EPOCHREALTIME/./} hit=no
  kill "-$1" "${@:2}" 2>/dev/null && hit=yes && ((++injected[$kind]))
  story+=" $1 after $(done_of "$run")"
}
is_stopped() {  # PROCESS...: a process in a system call stops at its end, which a busy disk makes late
  local process
  for process; do ! grep -qs '^State:.[RSD]' "/proc/$process/task/"*/status || return 1; done
}
wake() {  # PROCESS...
  struck_at=${EPOCHREALTIME/./}
  kill -CONT "$@" 2>/dev/null
}
# Checks that the job ends in time, counted from the fault if there was one; $code is its exit code.
ended() {  # SECONDS
  local took
  until_true "$1" all_gone "$job" "${ranks[@]}" 2>/dev/null || bad "not ended after $1 s: $(tail "$log")"
  took=$((struck_at ? (${EPOCHREALTIME/./} - struck_at) / 1000 : 0)) struck_at=0
  ((took <= ${longest[$kind]})) || longest[$kind]=$took
  kill -KILL "$job" "${ranks[@]}" 2>/dev/null
  wait "$job" 2>/dev/null
  code=$?
  story+=", ended with $code"
}
# Seconds for a job that computes what is left, which takes a few; a machine with other work is slow.
whole_job=600
# A job without a fault.
undisturbed() { begin && ended $whole_job && ((code == 0)) || bad "does not complete: $(tail "$log")"; }
is_complete() { [[ $(cat "$run/STATUS" 2>/dev/null) == complete* ]]; }
# Checks that fault.json names the rank if all ranks had begun (only srun knows of a rank that is alone on another node), and that stderr
# names it, at least by the launcher.
named() {  # RANK
  [[ $count == 1 || $hit == no ]] || is_complete && return
  local folder="$run/jobs/$((before + 1))" record
  record=$(cat "$folder/fault.json" 2>/dev/null)
  if [[ $record == "{\"rank\":$1,"* ]]; then
    ((++recorded[$kind]))
  elif [[ -n $record ]] || { [[ -z $slurm ]] && (($(compgen -G "$folder/logs/*" | wc -l) == count)); }; then
    bad "fault.json does not name rank $1: $record"
  fi
  grep -Eq "(rank|task) $1\b" "$log" || { ((++unnamed[$kind])) && bad "rank $1 is not named: $(tail "$log")"; }
}

kill_rank() {
  begin_ranks && moment
  local victim=$((RANDOM % count))
  strike KILL "${ranks[victim]}"
  ended 15 && named $victim
}
kill_all() {
  begin_ranks && moment
  strike KILL "$job" "${ranks[@]}"
  ended 15
}
kill_launcher() {
  begin_ranks 2 && moment
  strike KILL "$job"
  ended 15
}
stop_rank() {
  begin_ranks 2 && moment
  local victim=$((RANDOM % count))
  strike STOP "${ranks[victim]}"
  ended "$([[ -n $slurm ]] && echo 40 || echo 25)" && named $victim  # without rank 0 a start ends 10 s later; srun waits 10 s for the other ranks
}
order_stop() {
  begin_ranks && moment
  local signals=(TERM USR1)
  strike "${signals[RANDOM % 2]}" "${ranks[0]}"
  ended 30
}
# The pause is longer than any deadline.
suspend() {
  begin_ranks && later_moment
  strike STOP "$job" "${ranks[@]}"
  sleep 10
  wake "$job" "${ranks[@]}"
  ended $whole_job
  [[ $hit == no || $code == 0 ]] || bad "did not go on: $(tail "$log")"
}
# A job is stopped until another job has taken over. Then it resumes, and must end.
zombie() {
  begin_ranks && moment
  strike STOP "$job" "${ranks[@]}"
  local asleep=("$job" "${ranks[@]}") its_log=$log
  until_true 30 is_stopped "${asleep[@]}" || bad "does not stop"
  undisturbed
  job=${asleep[0]} ranks=("${asleep[@]:1}") log=$its_log
  wake "${asleep[@]}"
  ended 30
  ((code == 0)) || grep -q 'another job has taken over' "$log" || bad "woke up with: $(tail "$log")"
}
two_starts() {
  begin
  local first=$job its_log=$log
  sleep 0.$((RANDOM % 10))
  begin && ended $whole_job
  until_true $whole_job gone "$first" || bad "not ended after $whole_job s: $(tail "$its_log")"
  wait "$first"
  [[ " 0:0 0:69 69:0 " == *" $?:$code "* ]] || bad "not one of two: $? and $code: $(tail "$its_log" "$log")"
  ((++injected[$kind]))
}
disk_full() {
  begin_ranks && moment
  cat /dev/zero >"$CHAOS_DISK/filler" 2>/dev/null
  strike 0 "$job"
  ended $whole_job
  ((code == 0)) || grep -Eq 'No space left on device|of free space, but' "$log" || bad "a full disk, and no word of it: $(tail "$log")"
  rm "$CHAOS_DISK/filler"
}
# Truncates journals or flips a bit in them: only a disk does that.
damage() {
  kill_all
  ! is_complete || return 0
  local journal size at byte
  for journal in "$run"/jobs/*/journal; do
    size=$(stat -c %s "$journal" 2>/dev/null) && ((size > 0)) || continue
    at=$(((RANDOM << 15 | RANDOM) % size))
    byte=$(($(od -An -tu1 -j$at -N1 "$journal") ^ 1 << RANDOM % 8))
    if ((RANDOM % 2)); then truncate -s $at "$journal"; else printf "\\x$(printf %x $byte)" | dd of="$journal" bs=1 seek=$at conv=notrunc status=none; fi
  done
}
cut_link() {
  begin_ranks 2 && later_moment
  ip link set n2 down
  strike 0 "$job"
  until_true 60 all_gone "${ranks[@]}" || bad "ranks are left 60 s after the cut: $(tail "$log")"
  ip link set n2 up
  ended 60
  is_complete || grep -Eq 'rank [0-3] on n[12]' "$log" || bad "the cut is not named: $(tail "$log")"
}

settled() { "$(dirname "$MANIPLE")/journal_records" "$run" | awk '$2 ~ /finished|failed/ { print $3 }' | sort; }
# After each fault: the status is right (65: no run was begun), and the journals hold the requests that progress.json counts.
kept() {
  "$MANIPLE" status "$run" --rc >"$work/status" 2>&1
  local rc=$? kept
  case $rc in
    0) is_complete ;;
    65) [[ ! -e $run/STATUS ]] ;;
    69) [[ $kind == disk_full ]] ;; # refused to start on the full disk
    75) [[ $kind == order_stop ]] ;;
    *) ((rc == 76)) ;;
  esac || bad "status --rc is $rc: $(cat "$work/status" "$run/STATUS")"
  kept=$(settled | uniq | wc -l)
  [[ $kind == damage ]] || (($(done_of "$run") <= kept)) || bad "progress.json tells of $(done_of "$run") requests, the journals of $kept"
}
# The same command again completes the run, with the bytes of the undisturbed run.
completed() {
  local all once
  undisturbed
  ((restarts[$kind] += jobs - 1))
  cmp "$undisturbed/results.jsonl" "$run/results.jsonl" && cmp "$undisturbed/errors.jsonl" "$run/errors.jsonl" || bad "other bytes"
  all=$(settled | wc -l) once=$(settled | uniq | wc -l)
  ((once == requests)) || { ((lost += requests - once)) && bad "$((requests - once)) requests are in no journal"; }
  # The journal of a job that resumed after the takeover may repeat requests.
  ((all == once)) || [[ $kind == zombie ]] || { ((doubled += all - once)) && bad "$((all - once)) requests were done twice"; }
}

play_round() {
  local hits=$((1 + RANDOM % 2)) before_round=$failures since=$SECONDS
  if ((RANDOM % 3)); then of_model shakespeare; else of_model tiny-qwen3-moe; fi
  round=$work/round run=$round/run jobs=0 struck_at=0 story='' started=()
  [[ $kind != disk_full ]] || run=$CHAOS_DISK/run
  rm -rf "$round" "$run"
  mkdir "$round"
  for ((; hits > 0; hits--)); do
    $kind
    kept
    ! is_complete || break
  done
  completed
  ((++played[$kind]))
  say "round $number, --seed $((seed + number)) --only $kind --rounds 1: ${undisturbed##*/}$story; $((SECONDS - since)) s"
  ((failures == before_round)) && return
  ((++failed[$kind]))
  [[ $kind != disk_full ]] || cp -r "$run" "$round"
  cp -r "$round" "${TMPDIR:-/tmp}/maniple-chaos-$((seed + number))-$kind" && say "kept: ${TMPDIR:-/tmp}/maniple-chaos-$((seed + number))-$kind"
}

: "${kinds:=kill_rank kill_all kill_launcher stop_rank order_stop suspend zombie two_starts disk_full damage ${slurm:+cut_link}}"
[[ $CHAOS_DISK != none ]] || { say "disk_full: skipped, no right to mount a small disk here" && kinds=${kinds/disk_full/}; }
declare -A played injected restarts longest recorded unnamed failed
for kind in $kinds; do played[$kind]=0 injected[$kind]=0 restarts[$kind]=0 longest[$kind]=0 recorded[$kind]=0 unnamed[$kind]=0 failed[$kind]=0; done
lost=0 doubled=0 deck=()
for ((number = 0; rounds > 0 ? number < rounds : SECONDS < minutes * 60; number++)); do
  RANDOM=$(cksum <<<"$((seed + number))" | cut -d' ' -f1)
  ((${#deck[@]} > 0)) || read -ra deck <<<"$kinds"
  pick=$((RANDOM % ${#deck[@]}))
  kind=${deck[pick]}
  deck=("${deck[@]:0:pick}" "${deck[@]:pick+1}")
  play_round
done

printf '\n| kind | rounds | faults | restarts | longest time to the end, s | named in fault.json | not named | failed |\n|---|--:|--:|--:|--:|--:|--:|--:|\n'
for kind in $kinds; do
  printf '| %s | %d | %d | %d | %d.%d | %d | %d | %d |\n' $kind "${played[$kind]}" "${injected[$kind]}" "${restarts[$kind]}" \
    $((${longest[$kind]} / 1000)) $((${longest[$kind]} % 1000 / 100)) "${recorded[$kind]}" "${unnamed[$kind]}" "${failed[$kind]}"
done
say "seed $seed, $number rounds: $lost requests lost, $doubled doubled"
finish
