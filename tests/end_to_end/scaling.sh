# Scaling studies: what is planned and refused, what is reported of made-up launches, and real ones that are killed, stopped and go on.
. "$HERE/lib.sh"
cd "$work" || exit 1
run=$HERE/../../cluster/scaling/run
export MANIPLE MPIRUN

scaling() { "$MANIPLE" scaling "$@" >out 2>err; }
# wrong CODE "words" ARGUMENTS...: refused with nothing on stdout.
wrong() {
  local code=$1 words=$2
  shift 2
  scaling "$@"
  refused $? "$code" "$words" "scaling $*"
}

say "bad input"
wrong 64 "--mode (linear)|strong, weak" plan s --model "$model" --mode linear
wrong 64 "--tp and --dp both have several sizes|a study for each" plan s --model "$model" --tp 1,2 --dp 1,2
wrong 64 "--launcher (mpirun) has no {ranks}" plan s --model "$model" --dp 1,2 --launcher mpirun
wrong 64 "unknown {rank}" plan s --model "$model" --launcher 'mpirun -n {rank}'
wrong 64 "needs --ranks-per-node" plan s --model "$model" --launcher 'srun -N {nodes} -n {ranks}'
wrong 64 "--lengths" plan s --model "$model" --lengths fixed:0/1
wrong 64 "speed" plan s --model "$model" -- --speed 3
wrong 65 "tp 3, dp 1|do not divide by tensor ranks (3); use --tp 1, 2, 4 or 8" plan s --model "$model" --tp 1,3
wrong 65 "gone" plan s --model gone --dp 1,2
wrong 64 "scaling takes what to do"
wrong 65 "there is no study in $work" next "$work"
wrong 64 "scaling next takes no --dp|maniple scaling next s" next s --dp 2
wrong 64 "scaling next takes no --max-num-seqs" next s -- --max-num-seqs 64
[[ ! -e s ]] || bad "a refused study left a folder"
mkdir full && touch full/file
wrong 65 "full exists, and is no study" plan full --model "$model" --dp 1,2
bash "$run" full 2>err && bad "a folder without a study was run"
grep -q "there is no study in full" err || bad "not the message of a folder without a study: $(cat err)"

say "a plan"
scaling plan s --model "$model" --dp 4,1,2 --rounds 2 --seed 7 --launcher 'srun -N {nodes} -n {ranks}' --ranks-per-node 2 -- --max-num-seqs 64 || bad "not planned: $(cat err)"
scaling plan s --model "$model" --dp 1,2,4 --rounds 2 --seed 7 --launcher 'srun -N {nodes} -n {ranks}' --ranks-per-node 2 -- --max-num-seqs 64 || bad "the same study again: $(cat err)"
wrong 65 "s holds another study: its rounds|2, not 3" plan s --model "$model" --dp 1,2,4 --seed 7 --launcher 'srun -N {nodes} -n {ranks}' --ranks-per-node 2 -- --max-num-seqs 64
next_is() {  # PLACE WORDS...
  scaling next s || bad "next ended with $?: $(cat err)"
  grep -q "  # $1\$" out || bad "next is not $1: $(cat out)"
  grep -Fq -- "$2" out || bad "no \"$2\" in $(cat out)"
}
next_is points/tp1-dp1/round-1 "srun -N 1 -n 1 $MANIPLE bench throughput --model $model --tp 1 --num-prompts 100 "
"$RECORDER" launch s 1 1 1 100
next_is points/tp1-dp2/round-1 "--seed 7 --warmup 1 --record $work/s/points/tp1-dp2/round-1/record.h5 --overwrite --quiet"
"$RECORDER" launch s 1 2 1 180
next_is points/tp1-dp4/round-1 "srun -N 2 -n 4 "
scaling plan weak --model "$model" --mode weak --tp 2 --dp 1,2 && scaling next weak && grep -q 'mpirun -n 2 .*--tp 2 --num-prompts 200 ' out || bad "not the work of two ranks: $(cat out err)"
scaling plan "it's a study" --model "$model" && scaling next "it's a study" && eval "set -- $(cat out)" && [[ " $* " == *" $work/it's a study/points/tp1-dp1/round-1/record.h5 "* ]] ||
  bad "not quoted for the shell: $(cat out err)"

say "records that are not of this launch do not count"
cp s/points/tp1-dp1/round-1/record.h5 s/points/tp1-dp4/round-1/record.h5
next_is points/tp1-dp4/round-1 ""
echo text >s/points/tp1-dp4/round-1/record.h5
next_is points/tp1-dp4/round-1 ""

say "failed twice"
printf '1\n137\n' >s/points/tp1-dp4/round-1/attempts
next_is points/tp1-dp1/round-2 ""
grep -q "s/points/tp1-dp4/round-1 is skipped: it failed 2 times (exit codes 1, 137)" err || bad "a skipped launch is not said: $(cat err)"
reported "# failed 2 times (exit codes 1, 137), and skipped: s/points/tp1-dp4/round-1|# missing: tp 1, dp 4, round 2|VALID, 1 of 2 rounds" s

say "the report of made-up launches"
"$RECORDER" launch s 1 4 1 300 && "$RECORDER" launch s 1 1 2 102 && "$RECORDER" launch s 1 2 2 184 && "$RECORDER" launch s 1 4 2 306
scaling next s && [[ ! -s out ]] || bad "something is left: $(cat out)"
# Medians 101, 182, 303: speed-ups 1.802 and 3; Karp-Flatt (1/S - 1/p) / (1 - 1/p): 0.1099 and 0.1111; the fit lies between.
reported "# strong scaling over dp (tp 1), reference 1 rank, 2 launches|1.80  0.901       0.110  VALID|3.00  0.750       0.111  VALID|serial fraction 0.111, at most 9.0x; over dp only" s
(($(grep -c '^# missing' out) == 0)) || bad "a complete study misses something: $(cat out)"
reported '"speed_up":3.0|"missing":[]' s --json -
reported "fom: efficiency = 0.750" s --fom --csv tables
"$MANIPLE" report s >table
while IFS=, read -r ranks nodes tp pp dp _ rate _ _ speed_up efficiency karp_flatt verdict _; do
  read -r -a row < <(grep "^ *$ranks " table)
  expected=$(LC_ALL=C printf '%d %d %d %d %d %.1f %.2f %.3f ' "$ranks" "$nodes" "$tp" "$pp" "$dp" "$rate" "$speed_up" "$efficiency")
  expected+=$([[ -z $karp_flatt ]] && echo - || LC_ALL=C printf '%.3f' "$karp_flatt")
  [[ "${row[*]}" == "$expected $verdict" ]] || bad "the table has ${row[*]}, the CSV $expected $verdict"
done < <(tail -n +2 tables/scaling.csv)
"$MANIPLE" report s --require 'efficiency>=0.75' >out 2>err || bad "a requirement that holds: $(cat err)"
"$MANIPLE" report s --require 'efficiency>=0.8' >out 2>err
(($? == 1)) || bad "a missed requirement did not end with 1: $(cat err)"
"$MANIPLE" report s weak >out 2>err
refused $? 64 "reported alone" "report s weak"
if command -v gnuplot >/dev/null; then
  reported "strong" s --svg plots
  for name in speed_up efficiency; do
    ! command -v xmllint >/dev/null || xmllint --noout "plots/$name.svg" || bad "$name.svg is no XML"
    (($(grep "#gpPt6' transform" "plots/$name.svg" | grep -vc FFFFFF) == 4)) || bad "not three points and that of the legend in $name.svg"
  done
fi

say "real launches: killed, failed, stopped, and the rest"
cat >launch <<'SCRIPT'
#!/bin/bash
[[ ! -e code ]] || exit "$(cat code)"
echo $$ >pid
exec $MPIRUN -n "$@"
SCRIPT
chmod +x launch
scaling plan real --model "$model" --dp 1,2 --rounds 2 --repeats 1 --num-prompts 64 --lengths fixed:16/64 --launcher './launch {ranks}' || bad "not planned: $(cat err)"
first=real/points/tp1-dp1/round-1
run_study() {
  bash "$run" real >run.out 2>run.err
  rc=$?
}
start_study() {  # in the background, until its launch computes
  rm -f pid "$1/out"
  bash "$run" real >run.out 2>run.err &
  runner=$!
  started+=("$runner")
  until_true 60 test -s "$1/out" || bad "no launch: $(cat run.err)"
  started+=("$(cat pid)")
}
is_free() { flock -n real/lock true; }

start_study $first
kill -9 "$runner"
wait "$runner" 2>/dev/null
if ! is_free; then
  run_study
  ((rc == 69)) && grep -q "still works on real" run.err || is_free || bad "beside a launch that was left behind: $rc $(cat run.err)"
fi
until_true 60 is_free || bad "the launch that was left behind does not end"
[[ ! -e $first/attempts ]] || bad "a killed script has counted an attempt"
rm -f $first/record.h5

start_study $first
touch code && echo 75 >code  # what comes after is stopped
kill -9 "$(cat pid)"
wait "$runner"
(($? == 75)) || bad "the end of the job's time: $(cat run.out run.err)"
[[ $(cat $first/attempts) == 137 ]] || bad "a killed launch is one attempt, a stopped one is none: $(cat $first/attempts)"
grep -q "round-1: exit code 137 after .*err" run.out && grep -q ": stopped" run.out || bad "not a line a launch: $(cat run.out)"

rm code
start_study $first
kill -TERM "$runner"
wait "$runner"
rc=$?
((rc == 143)) || bad "SIGTERM ended the script with $rc: $(cat run.out run.err)"
[[ -e $first/record.h5 ]] || [[ $(cat $first/attempts) == 137 ]] || bad "a stopped launch counts: $(cat $first/attempts)"

echo 3 >code
run_study
((rc == 1)) || bad "skipped launches ended with $rc"
grep -q "skipped: it failed 2 times (exit codes .*3)" run.err || bad "skipped launches are not named: $(cat run.err)"
rm code real/points/*/*/attempts
run_study
((rc == 0)) || bad "the rest ended with $rc: $(cat run.out run.err)"
scaling next real && [[ ! -s out && ! -s err ]] || bad "something is left: $(cat out err)"
reported "# strong scaling over dp (tp 1)|     2     1   1   1   2  " real
! grep -q missing out || bad "a complete study misses something: $(cat out)"
run_study
((rc == 0)) && [[ ! -s run.out ]] || bad "a complete study is run again: $(cat run.out)"
finish
