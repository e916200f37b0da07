#!/usr/bin/env bash
# The cost of a run directory: 10,000 short requests with --out and with --run-dir; the last 100 of them alone and as the rest of a run. The two
# runs of a pair run at the same time, so other load on the machine slows both. Prints medians of the rounds, costs as medians of the differences
# within a round, as Markdown. Usage: tests/bench/run_directory_bench.sh [ROUNDS]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rounds=${1:-5}
program=${MANIPLE:-$here/../../build/release/maniple}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for ((i = 0; i < 10000; i++)); do printf '{"id":%d,"prompt":"Scene %d. ROMEO:\\n","max_tokens":8,"ignore_eos":true}\n' $i $i; done >in
tail -100 in >rest

# timed NAME arguments...: appends its wall and processor seconds to NAME
timed() {
  local TIMEFORMAT='%R %U %S'
  { time "$program" generate --model "$here/../data/models/shakespeare" --seed 1 --threads 1 "${@:2}" 2>"$1.log"; } 2>"$1.seconds" || { cat "$1.log" >&2 && exit 1; }
  awk '{ print $1, $2 + $3 }' "$1.seconds" >>"$1"
}
# both OUT_NAME INPUT RUN_NAME: with --out and with --run-dir at the same time
both() {
  timed "$1" --in "$2" --out out.jsonl --overwrite &
  local other=$!
  timed "$3" --in in --run-dir dir &
  wait $!
  wait $other
}
for ((round = 0; round < rounds; round++)); do
  both out in run
  cmp out.jsonl dir/results.jsonl
  mv dir/results.jsonl whole.jsonl
  rm dir/STATUS
  truncate --size=$(($(stat -c %s dir/jobs/1/journal) * 99 / 100)) dir/jobs/1/journal
  both rest_out rest rest_run
  cmp whole.jsonl dir/results.jsonl
  rm -r dir
done

median() { sort -n | awk -v format="$1" '{ all[NR] = $1 } END { printf format, (all[int((NR + 1) / 2)] + all[int(NR / 2) + 1]) / 2 }'; }
row() { printf '| %s | %s | %s |\n' "$1" "$(cut -d' ' -f1 "$2" | median %.2f)" "$(cut -d' ' -f2 "$2" | median %.2f)"; }  # NAME TIMES
percent() { paste -d' ' "$1" "$2" out | awk -v field="$3" '{ print 100 * ($field - $(field + 2)) / $(field + 4) }' | median '%.1f %%'; }
cost() { printf '| %s | %s | %s |\n' "$1" "$(percent "$2" "$3" 1)" "$(percent "$2" "$3" 2)"; }  # NAME WITH WITHOUT: cost of the whole run

printf '| %d rounds | wall s | processor s |\n|---|--:|--:|\n' "$rounds"
row "10,000 requests, --out" out
row "10,000 requests, --run-dir" run
cost "the run directory" run out
row "100 requests, --out" rest_out
row "the last 100 of 10,000, --run-dir again" rest_run
cost "resuming" rest_run rest_out
