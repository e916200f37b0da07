# The scripts of cluster/slurm and cluster/scaling on a real Slurm of four virtual nodes, each job on 2 nodes x 2 ranks: started by srun and by mpirun, stopped and
# resumed, as an array, as a chain, requeued, and with a node that is cut off. Skipped (77) where namespaces are not allowed.
. "$HERE/lib.sh"
testbed=$HERE/../../cluster/testbed
scripts=$HERE/../../cluster/slurm
for script in "$scripts"/* "$scripts"/../scaling/{run,study.sbatch} "$scripts"/../containers/*.sbatch; do
  bash -n "$script" || bad "$script"
  ! grep -q -- --job-name "$script" || bad "$script: all runs of a user would have one name"
done
export TESTBED=$work/testbed TESTBED_SECONDS=600
PATH=$(dirname "$MANIPLE"):$PATH
nodes=4
"$testbed/up" $nodes || exit
trap '"$testbed/down"; clean_up' EXIT
cluster() { "$testbed/run" "$@"; }

# Slurm works if all its daemons live and all nodes are idle, or while a process of maniple is left.
works() {
  (($(cluster pgrep -xc slurmd) == nodes && $(cluster sinfo --noheader --responding --states=idle --format=%D) + 0 == nodes)) ||
    cluster pgrep -x maniple >/dev/null
}
# A Slurm daemon that dies or hangs (seen once in hundreds of runs) is no fault of maniple: runs the test once more, on a new cluster.
judge() {
  if ((failures > 0)); then
    { cluster sinfo --Node --long; cluster squeue; cluster ps axf; tail -n 40 "$TESTBED"/*log; } >&2
    if [[ -z ${AGAIN:-} ]] && ! until_true 20 works; then
      say "SLURM ITSELF FAILED; once more"
      "$testbed/down"
      clean_up
      AGAIN=yes exec bash "$0"
    fi
  fi
  finish
}

# submit NAME sbatch-arguments...: 2 nodes x 2 ranks by default; $id is the job, NAME.log its output.
submit() {
  id=$(cluster sbatch --parsable --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --output="$work/$1.log" "${@:2}") || bad "$1: not submitted"
}
# job ID FIELD: the field of the job, or of all tasks of an array.
job() { cluster scontrol --oneliner show job "$1" | grep -Eo "(^| )$2=[^ ]*" | cut -d= -f2; }
over() { ! job "$1" JobState | grep -Eqv 'COMPLETED|FAILED|TIMEOUT|CANCELLED|NODE_FAIL'; }
# ended NAME SECONDS CODES: job $id, in time, with one of these exit codes in each of its tasks.
ended() {
  local code
  until_true "$2" over "$id" || { bad "$1: not ended after $2 s: $(job "$id" JobState) $(cat "$work/$1"*.log)"; return; }
  for code in $(job "$id" ExitCode); do
    [[ " $3 " == *" ${code%:*} "* && ($code == *:0 || " $3 " == *" any "*) ]] || bad "$1: exit code $code, not one of: $3: $(cat "$work/$1"*.log)"
  done
  say "$1: ended with $(job "$id" ExitCode | tr '\n' ' ')after $(job "$id" RunTime | tr '\n' ' ')"
}
same() { cmp "$work/expected" "$1" || bad "$1: other results than those of one undisturbed rank"; }
says() { grep -Eq -- "$2" "$work/$1.log" || bad "$1 does not say \"$2\": $(cat "$work/$1.log")"; }
generates() { grep -q 'KV cache' "$work/$1.log" 2>/dev/null; }
generating() { until_true 60 generates "$1" || bad "$1: not generating after 60 s: $(cat "$work/$1.log")"; }

# The reference backend makes this slow enough to stop it in the middle.
for i in $(seq 120); do
  printf '{"id":%d,"prompt":"Scene %d. ROMEO:\\n","max_tokens":32,"seed":%d,"ignore_eos":true}\n' "$i" "$i" "$i"
done >"$work/in"
run=(--model "$model" --in "$work/in" --seed 1 --backend reference --threads 1 --max-num-seqs 16)
"$MANIPLE" generate "${run[@]}" --out "$work/expected" 2>"$work/err" || bad "one rank: $(cat "$work/err")"
run+=(--tp 2)
# Slurm warns a job of one minute at its end, not 180 s before as the scripts ask: the clock of maniple stops the job.
minute=(--time=1 --signal=USR1@1)
printf '{"tokens":[1],"max_tokens":4000,"ignore_eos":true}\n%.0s' {1..400} >"$work/endless"
endless=(--model "$model" --in "$work/endless" --seed 1 --threads 1 --tp 2)

# A cut network reports no error: the ranks of both sides end at their own deadline. The other jobs continue meanwhile.
ranks_left() { cluster pgrep -f "^[^ ]*maniple generate .* $work/cut$"; }
none_left() { ! ranks_left >/dev/null; }
submit cut --nodelist=n3,n4 "$scripts/generate.sbatch" "${endless[@]}" --out "$work/cut"
generating cut
ranks_left >/dev/null || bad "cut: the ranks ended on their own: $(cat "$work/cut.log")"
cluster ip link set n4 down
(cut_at=$SECONDS; until_true 60 none_left && say "cut: all ranks were gone after $((SECONDS - cut_at)) s") &
watch=$!

say "doctor: what spans nodes is measured, and refused for a tensor group"
submit doctor "$scripts/doctor.sbatch" --model "$model" --tp 2 --run-dir "$work/doctor"
ended doctor 60 0
says doctor '^ +3 +n[1-4] +1 +1 '
says doctor '^ok: a network common to all nodes'
says doctor '^latency from rank 0, other nodes .* us'
cluster srun --nodes=2 --ntasks-per-node=1 --mpi=none "$MANIPLE" doctor --quick >"$work/none.log" 2>&1
(($? == 69)) || bad "without PMIx: not refused"
says none '2 copies were started, but MPI sees 1 rank in each'
says none 'this site offers: .*pmix'
submit spanning "$scripts/generate.sbatch" --model "$model" --in "$work/in" --tp 4 --run-dir "$work/spanning"
ended spanning 60 69
says spanning 'error: --tp 4 spans nodes: the ranks are 0-1 on n[1-4], 2-3 on n[1-4]'

say "without a run directory: results as by --out, and a stop is an interruption"
submit srun-out "$scripts/generate.sbatch" "${run[@]}" --out "$work/srun-out"
ended srun-out 60 0
same "$work/srun-out"
submit clock-out "${minute[@]}" "$scripts/cpu.sbatch" "${endless[@]}" --out "$work/clock-out" --stop-before 55s
ended clock-out 60 143
says clock-out "the job's time is over in [0-9]+ s"

wait $watch || bad "cut: ranks are left after 60 s: $(cat "$work/cut.log")"
says cut 'rank [0-3] on n[34] has not been heard of for [0-9]+ s'
cluster ip link set n4 up

say "GPUs are asked for, as many as ranks; without any nothing is computed by accident"
submit gpu --ntasks-per-node=4 "$scripts/gpu.sbatch" --model "$model" --in "$work/in" --run-dir "$work/gpu"
ended gpu 60 69
says gpu 'error: (this build has no CUDA backend|no GPU is visible)'
[[ $(job "$id" TresPerNode) == *gpu:4 ]] || bad "gpu.sbatch asked for: $(cluster scontrol show job "$id")"

say "one rank alone in an allocation of several tasks says how to start all"
submit alone --wrap="maniple doctor --quick"
ended alone 60 0
says alone '^warning: one rank runs alone in a Slurm allocation of 4 tasks'
says alone 'try: srun --mpi=pmix --ntasks=4 --cpus-per-task=1 maniple'
cluster salloc --nodes=2 --ntasks-per-node=2 srun --interactive --preserve-env maniple doctor --quick >"$work/shell.log" 2>&1 ||
  bad "salloc: $(cat "$work/shell.log")"
says shell '^warning: one rank runs alone in a Slurm allocation of 4 tasks'
cluster salloc --nodes=2 --ntasks-per-node=2 srun --nodes=1 --ntasks=1 maniple doctor --quick >"$work/meant.log" 2>&1 || bad "srun: $(cat "$work/meant.log")"
! grep -q 'runs alone' "$work/meant.log" || bad "srun --ntasks=1: $(cat "$work/meant.log")"

say "stopped by its time limit, and submitted again: srun"
submit srun "${minute[@]}" "$scripts/generate.sbatch" "${run[@]}" --run-dir "$work/srun" --stop-before 57s
ended srun 60 75
submit srun-again "$scripts/generate.sbatch" "${run[@]}" --run-dir "$work/srun"
ended srun-again 60 0
same "$work/srun/results.jsonl"
submit srun-no-op "$scripts/generate.sbatch" "${run[@]}" --run-dir "$work/srun"
ended srun-no-op 20 0

say "a rank that PMIx lets out of its first fence late: the others wait for it, with the scripts and without"
LATE_FENCE=2000 LD_PRELOAD=$LATE submit late "$scripts/generate.sbatch" "${run[@]}" --run-dir "$work/srun"
ended late 30 0
says late 'rank 0 was late'
cluster env LATE_FENCE=100 LD_PRELOAD="$LATE" srun --mpi=pmix --nodes=2 --ntasks-per-node=2 --kill-on-bad-exit=1 \
  maniple generate "${run[@]}" --run-dir "$work/srun" >"$work/late.log" 2>&1 || bad "late: srun ended with $?: $(cat "$work/late.log")"
says late 'rank 0 was late'

say "stopped by the signals of Slurm, and submitted again: mpirun"
for signal in USR1 TERM; do
  submit "mpirun-$signal" "$scripts/generate-mpirun.sbatch" "${run[@]}" --run-dir "$work/mpirun"
  generating "mpirun-$signal"
  cluster scancel --batch --signal=$signal "$id"
  ended "mpirun-$signal" 30 75
done
submit mpirun-again "$scripts/generate-mpirun.sbatch" "${run[@]}" --run-dir "$work/mpirun"
ended mpirun-again 60 0
same "$work/mpirun/results.jsonl"

say "a rank that is killed is named, with its node"
submit killed "$scripts/generate.sbatch" "${endless[@]}" --run-dir "$work/killed"
generating killed
log=$work/killed/jobs/1/logs/rank-0003.log
until_true 20 grep -q serving "$log" && cluster kill -KILL "$(grep -Eo 'process [0-9]+' "$log" | cut -d' ' -f2)"
ended killed 60 "76 137 143 1 9 any"
says killed 'rank 3 on n[1-4] has died \(last seen in step [1-9]'
says killed 'sbatch --exclude=n[1-4]'
grep -q '^{"rank":3,"host":"n[1-4]",' "$work/killed/jobs/1/fault.json" || bad "killed: $(cat "$work/killed/jobs/1/fault.json")"
[[ $(cat "$work/killed/STATUS") == "fault 76" ]] || bad "killed: $(cat "$work/killed/STATUS")"

say "an array, merged"
submit array.%a --array=0-2 --nodes=1 "$scripts/array.sbatch" "$work/array" "${run[@]}"
ended array 90 0
"$MANIPLE" merge "$work/array.merged" "$work"/array.[012]/ || bad "merge"
same "$work/array.merged"
submit from1.%a --array=1-3 --nodes=1 "$scripts/array.sbatch" "$work/from1" "${run[@]}"
ended from1 60 64
says from1.1 'try: --array=0-15 for 16 shards, or SHARDS=16'
[[ -z $(compgen -G "$work/from1.[0-9]") ]] || bad "an array from 1 computed something"
SHARDS=3 submit some.%a --array=1,2 --nodes=1 "$scripts/array.sbatch" "$work/array" "${run[@]}"
ended some 60 0
says some.2 'is complete'

say "a chain: the first job is stopped, the second completes, the others find nothing to do"
mapfile -t chain < <(cluster "$scripts/chain" 3 --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --output="$work/chain.log" \
  "$scripts/generate.sbatch" "${run[@]}" --run-dir "$work/chain")
chain+=("$(cluster env AFTER="${chain[2]}" "$scripts/chain" 1 --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --job-name=other --output="$work/chain.log" \
  "$scripts/generate.sbatch" "${run[@]}" --run-dir "$work/chain")")
generating chain
for k in 1 2 3; do
  [[ $(job "${chain[k]}" Dependency) == afterany:${chain[k - 1]}* ]] || bad "chain: $(cluster scontrol show job "${chain[k]}")"
done
cluster scancel --signal=USR1 "${chain[0]}"
for k in 0 1 2 3; do
  id=${chain[k]}
  ended chain 60 $((k == 0 ? 75 : 0))
done
same "$work/chain/results.jsonl"

say "a job that puts itself back into the queue"
submit requeue "$scripts/requeue.sbatch" "$work/requeue" "${run[@]}"
generating requeue
cluster scancel --signal=USR1 "$id"
ended requeue 90 0
(($(job "$id" Restarts) == 1)) || bad "requeue: it was not stopped and started again"
same "$work/requeue/results.jsonl"
echo 'stopped 75' >"$work/requeue/STATUS"
submit refused "$scripts/requeue.sbatch" "$work/requeue" "${run[@]}" --temperature 9
ended refused 60 75
(($(job "$id" Restarts) == 0)) || bad "refused: it came back, though it had done nothing"

say "a scaling study: stopped, killed with its script, and the rest"
"$MANIPLE" scaling plan "$work/study" --model "$model" --dp 2,4 --rounds 1 --repeats 2 --num-prompts 64 --lengths fixed:16/64 --threads 1 \
  --ranks-per-node 2 --launcher 'srun --mpi=pmix --kill-on-bad-exit=1 --wait=60 -N {nodes} -n {ranks}' 2>"$work/err" || bad "no study: $(cat "$work/err")"
launched() { [[ -s $work/study/points/tp1-dp2/round-1/out ]]; }
submit study-stopped "$scripts/../scaling/study.sbatch" "$work/study"
until_true 60 launched || bad "study: no launch: $(cat "$work/study-stopped.log")"
cluster scancel --batch --signal=USR1 "$id"
ended study-stopped 60 75
rm -f "$work/study/points/tp1-dp2/round-1/out"
submit study-killed "$scripts/../scaling/study.sbatch" "$work/study"
until_true 60 launched || bad "study: no launch: $(cat "$work/study-killed.log")"
cluster scancel --batch --signal=KILL "$id"
ended study-killed 60 "0 any"
[[ ! -e $work/study/points/tp1-dp2/round-1/attempts ]] || bad "a stop counts as an attempt"
submit study "$scripts/../scaling/study.sbatch" "$work/study"
ended study 90 0
says study '^points/tp1-dp4/round-1: exit code 0 '
"$MANIPLE" report "$work/study" >"$work/out" && grep -q '^ *4 * 2 * 1 * 1 * 4 .*\(VALID\|NOISY\)' "$work/out" || bad "study: $(cat "$work/out")"
judge
