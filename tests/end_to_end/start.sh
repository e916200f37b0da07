# A rank stops or dies before the ranks have found each other: a message names it, the job ends at --start-deadline, no shared memory is left.
. "$HERE/lib.sh"

# start_with NAME DEADLINE RANK DEED: four ranks, one of which stops or dies ("STOP exec": before exec of the program; "STOP init": at MPI_Init).
start_with() {
  local deed=${4% *} place=${4#* }
  MPIRUN="$MPIRUN -x HURT_AT_START -x LD_PRELOAD=$STOPPER" HURT_AT_START="$3 $deed $place" started_under "$1" "$2"
}
started_under() {
  # shellcheck disable=SC2016
  $MPIRUN -n 4 bash -c '[[ $HURT_AT_START == "$OMPI_COMM_WORLD_RANK "*exec ]] && set -- $HURT_AT_START -- "$@" && kill -$2 $$ && shift 4
    exec "$@"' sh "$MANIPLE" generate --model "$model" --prompt ROMEO: --max-tokens 4 --seed 1 --start-deadline "$2" </dev/null >"$work/$1.out" 2>"$work/$1.err" &
  job=$!
  started+=("$job")
}
# ends NAME SECONDS CODE
ends() {
  until_true "$2" gone "$job" || bad "$1: not ended after $2 s: $(cat "$work/$1.err")"
  wait "$job"
  local rc=$?
  ((rc == $3)) || bad "$1: exit code $rc, not $3: $(cat "$work/$1.err")"
}
# Jobs of other tests start meanwhile: their files are younger, or gone soon.
all_ended() {
  touch "$work/ended"
  until_true 10 nothing_left || bad "${1:-}left behind: $(ls -d /dev/shm/maniple-start-*)"
}
nothing_left() { [[ -z $(find /dev/shm -maxdepth 1 -name 'maniple-start-*' ! -newer "$work/ended") ]]; }
says() { grep -qF -- "$2" "$work/$1.err"; }  # NAME TEXT
said() { says "$@" || bad "$1 did not say '$2': $(cat "$work/$1.err")"; }
node="  $(uname -n): "

# Jobs that wait for their deadlines do so side by side.
start_with stopped 5s 1 "STOP init"
stopped=$job
start_with headless 5s 0 "STOP init"
headless=$job
start_with never 10s 2 "STOP exec"
until_true 8 says never "ranks are missing: the 4 of this job have not found each other for 2 s" || bad "no notice: $(cat "$work/never.err")"
! says never "maniple: error:" || bad "ended before its time: $(cat "$work/never.err")"
ends never 20 76
said never "${node}not come to MPI_Init: rank 2"
said never "${node}in MPI_Init: rank 0, rank 1, rank 3"
said never "did not find each other within 10 s"
# mpirun wakes the stopped rank before it kills it: what that rank says comes after the error.
(($(sed '/maniple: error:/q' "$work/never.err" | grep -c 'ranks are missing') == 1)) || bad "said more than once: $(cat "$work/never.err")"

job=$stopped ends stopped 20 76
said stopped "${node}stopped: rank 1"
said stopped "${node}in MPI_Init: rank 0, rank 2, rank 3"

say "without rank 0 another one speaks, 10 s later"
job=$headless ends headless 30 76
said headless "${node}stopped: rank 0"
said headless "where: rank 1"
(($(grep -c 'maniple: error:' "$work/headless.err") == 1)) || bad "not exactly one message: $(cat "$work/headless.err")"
all_ended

say "the launcher names a rank that died"
for place in exec init; do
  start_with "died-$place" 60s 3 "KILL $place"
  ends "died-$place" 20 137
  # mpirun does not always name a process that dies while it starts the others.
  grep -Eq "rank 3 .* exited on signal 9$([[ $place == init ]] || echo '|a non-zero exit code')" "$work/died-$place.err" ||
    bad "died-$place: $(cat "$work/died-$place.err")"
  all_ended
done

say "a start that is given up leaves nothing behind either"
start_with interrupted 60s 2 "STOP exec"
on_the_roll() { [[ -n $(pgrep -P "$job" | xargs -I{} find /proc/{}/fd -lname '/dev/shm/maniple-start-*' 2>/dev/null) ]]; }
until_true 20 on_the_roll || bad "no roll is called"
sleep 1  # for the other ranks to be on it
kill -TERM "$job"
until_true 20 gone "$job" || bad "interrupted: not ended"
all_ended "interrupted: "
finish
