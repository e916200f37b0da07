# bench: tables and JSON on 1, 2 and 4 ranks, hand-computed bandwidths, verdicts, refusals, and that a stopped bench leaves nothing.
. "$HERE/lib.sh"
. "$HERE/bench_lib.sh"
say_cover

short=(--end 256K --factor 32 --repeats 2)

say "comm: the groups of the layout"
bench 1 0 comm
says '^# maniple [0-9.]+ git .* \| rank 0 .* cpu '
says '^# group world: one rank, nothing to exchange'
says '^RESULT INVALID: nothing was measured$'
bench 1 1 comm --require-valid
says 'maniple: error: the result is INVALID: nothing was measured' err
bench 2 0 comm --tp 2 "${short[@]}" --dtype bf16 --json "$work/two.json"
says '^# group tensor: 1 group of 2; times of the slowest rank; 2 repeats, median \[95 % CI\]; sums by (messages|shared memory)'
says '^# group data: one rank'
says '^# group world: the ranks of group tensor$'
says '^ +8 +4 bfloat16 reduce_scatter +[0-9.]+ +\[-, -\] +[0-9.e-]+ +[0-9.e-]+  0$'
says '^# out of bounds values: 0 OK +fom: busbw_tensor_all_reduce_256KiB = [0-9.]+ GB/s$'
says '^RESULT NOISY: too few repeats for a 95 % interval, 6 wanted$'
bench 4 0 comm --tp 2 "${short[@]}" --json "$work/four.json"
says '^# group data: 2 groups of 2, at the same time'
says '^# group world: 1 group of 4;'
for file in two four; do
  holds "$work/$file.json" 'all(r["wrong"] == 0 and abs(r["algbw_gb_s"] * r["time_us"] * 1e3 / r["bytes"] - 1) < 1e-9 for r in j["rows"])'
  holds "$work/$file.json" 'all(abs(r["busbw_gb_s"] / r["algbw_gb_s"] - {"all_reduce": 2 * (r["ranks"] - 1) / r["ranks"], "all_gather": (r["ranks"] - 1) / r["ranks"],
    "reduce_scatter": (r["ranks"] - 1) / r["ranks"], "broadcast": 1, "sendrecv": 1}[r["operation"]]) < 1e-9 for r in j["rows"])'
done
holds "$work/two.json" 'len(j["rows"]) == 5 * 4 and j["verdict"] == "NOISY" and j["rows"][0]["ci_low_us"] is None'
holds "$work/four.json" 'len(j["rows"]) == 3 * 5 * 4 and {(r["group"], r["ranks"]) for r in j["rows"]} == {("tensor", 2), ("data", 2), ("world", 4)}'
bench 3 0 comm --op all_gather,sendrecv --begin 20 --end 20 --no-check --json -
holds "$work/out" 'len(j["rows"]) == 2 and j["rows"][0]["wrong"] is None and j["rows"][0]["ci_low_us"] <= j["rows"][0]["time_us"] <= j["rows"][0]["ci_high_us"]'
says '^RESULT ' err
says 'out of bounds values: not checked' err

bench 2 0 comm --op all_reduce --begin 64K --end 128K --record "$work/comm.h5"
"$MANIPLE" report "$work/comm.h5" >"$work/out" || bad "report of bench comm"
says '^.*comm.h5: bench comm, 2 ranks on 1 node .*, fp32'
says '^ +busbw_data_all_reduce_128KiB +[0-9.e-]+ \[[0-9.e-]+, [0-9.e-]+\] GB/s +\(6 repeats'
bench 2 69 comm --begin 1T --end 1T
says 'maniple: error: messages of 1 TiB need 6 TiB on .* are free' err

say "load: each byte once"
for layout in "1 1" "2 2" "4 2"; do
  read -r ranks tp <<<"$layout"
  bench "$ranks" 0 load --model "$model" --tp "$tp" --repeats 2 --json "$work/load.json" --overwrite
  says '^ +[0-9]+ +1\.000 +[0-9.e-]+ +\[-, -\] +[0-9.]+$'
  holds "$work/load.json" 'j["bytes"] == j["model_bytes"] and j["gb_s"] > 0 and abs(j["gb_s"] * j["time_s"] * 1e9 / j["bytes"] - 1) < 1e-9'
done
bench 2 0 load --model "$model" --cold --dtype fp32 --record "$work/load.h5"
says 'page cache dropped'
says '^RESULT (VALID|NOISY)'
"$MANIPLE" report "$work/load.h5" >"$work/out" || bad "report of bench load"
says '^ +load_gb_per_s .* GB/s +\(6 repeats'

say "bad input: one message, nothing measured"
# no RANKS CODE "words|of the message" options...
no() {
  local ranks=$1 code=$2 words=$3 rc
  shift 3
  on "$ranks" bench "$@" >"$work/out" 2>"$work/err"
  rc=$?
  refused $rc "$code" "$words" "bench $*"
}
no 1 64 'bench takes what to measure|maniple bench comm'
no 2 64 'unknown bench troughput|did you mean throughput?' troughput
no 1 64 '--record and --json are the same file' comm --record r.h5 --json r.h5
no 2 64 '--op (all_reduse) must be some of|did you mean all_reduce?' comm --op all_reduse
no 1 64 '--group (pipelines) must be some of: tensor, context, expert, expert_tensor, pipeline, data, world' comm --group pipelines
no 1 64 '--begin: "8X" is not a number of bytes' comm --begin 8X
no 1 64 '--repeats (0)' comm --repeats 0
no 1 64 '--model does not go with bench comm' comm --model "$model"
no 1 64 'no model was given' load
no 2 64 'ranks (2) do not divide by --tp 3' comm --tp 3
no 1 65 'nowhere' load --model "$work/nowhere"
no 2 65 'is there already|--overwrite' comm --json "$work/two.json"
no 1 65 'cannot write' load --model "$model" --json "$work/nowhere/x.json"
holds "$work/two.json" 'j["bench"] == "comm"'
"$MANIPLE" bench comm >/dev/full 2>"$work/err"
rc=$?
: >"$work/out"
refused $rc 76 'cannot write results to stdout' "stdout is full"

say "a stop keeps nothing"
long=(comm --begin 64K --end 64K --repeats 1000)
# stopped CODE NAME: the job in $job ends with this code soon, without a file.
stopped() {
  local rc
  until_true 15 gone "$job" || bad "$2: still running"
  wait "$job"
  rc=$?
  grep -qx "$rc" <<<"${1// /$'\n'}" || bad "$2: exit code $rc, not $1: $(cat "$work/$2.err")"
  [[ -z $(find "$work" -name 'stopped.json*') ]] || bad "$2 left $(ls "$work")"
}
measuring() { grep -q '^# group data' "$work/table"; }
for signal in INT:130 TERM:143; do
  today 2 || continue
  start "rank0-${signal%:*}" 4 bench "${long[@]}" --json "$work/stopped.json" >"$work/table"
  find_ranks "$job" 4 && until_true 30 measuring && kill "-${signal%:*}" "${ranks[0]}"
  stopped "${signal#*:}" "rank0-${signal%:*}"
  grep -q "stopped by SIG${signal%:*}; nothing was kept" "$work/rank0-${signal%:*}.err" || bad "no word of the stop: $(cat "$work/rank0-${signal%:*}.err")"
done
start mpirun 4 bench "${long[@]}" --json "$work/stopped.json" >"$work/table"
find_ranks "$job" 4 && until_true 30 measuring && kill -INT "$job"
stopped "1 130 137 143" mpirun
start alone 1 bench load --model "$model" --repeats 1000 --json "$work/stopped.json" --walltime 4s --stop-before 2s >"$work/table"
stopped 75 alone
start killed 4 bench "${long[@]}" --json "$work/stopped.json" >"$work/table"
find_ranks "$job" 4 && until_true 30 measuring && kill -KILL "${ranks[2]}"
stopped "1 76 137" killed
finish
