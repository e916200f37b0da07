# Preflight and doctor: what they print, what they refuse, and that a refused run can be started again.
. "$HERE/lib.sh"
printf '{"tokens":[5],"max_tokens":2}\n' >"$work/in"

# doctor RANKS CODE options...: what it says goes to $work/out.
doctor() {
  local ranks=$1 code=$2 rc
  shift 2
  say "doctor: $ranks ranks $*"
  on "$ranks" doctor "$@" >"$work/out" 2>"$work/err"
  rc=$?
  ((rc == code)) || bad "doctor $*: exit code $rc, not $code: $(cat "$work/out" "$work/err")"
}
says() { grep -Eq -- "$1" "$work/out" || bad "doctor does not say \"$1\": $(cat "$work/out" "$work/err")"; }
# refused WORDS options...: by doctor and by generate, before weights are read.
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
for line in 'latency from rank 0, same node .* us' 'all-reduce of 16 MiB, tensor groups .* us' 'all-reduce of 4.0 KiB, all ranks .* us' \
  'memory of a rank .* GB/s' 'reading the model, each node .* GB/s' '64 KiB safe in the run directory .* ms'; do
  says "^$line"
done
[[ ! -e $work/doctor && -z $(find "$work" -name 'maniple-doctor*') ]] || bad "doctor left something behind: $(ls -A "$work")"

refused 'the ranks 0-1 on .* need .* for weights and 200 TiB for the KV cache' --kv-memory 100T
SLURM_HET_SIZE=2 refused 'this is a heterogeneous Slurm job of 2 components'
doctor 2 64 --tp 3
doctor 2 65 --model "$work/nowhere" --quick

say "a run that was refused starts when the reason is gone"
on 2 generate --model "$model" --in "$work/in" --run-dir "$work/refused" 2>"$work/err" || bad "the same run again: $(cat "$work/err")"
grep -q 'preflight: [0-9]* checks ok, 0 warnings' "$work/err" || bad "generate says nothing of its checks: $(cat "$work/err")"
for table in "$work/err" "$work"/refused/jobs/*/topology.txt; do
  grep -Eq "^ +1 +$(uname -n) +0 +1 " "$table" || bad "no line of rank 1 in $table: $(cat "$table")"
done

if (($(nproc) >= 2)); then
  taskset -c 0 $MPIRUN -n 1 "$MANIPLE" doctor --quick >"$work/out" 2>"$work/err"
  says '^warning: 1 of 1 ranks may use only 1 CPU'
fi
finish
