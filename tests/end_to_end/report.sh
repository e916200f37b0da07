# `maniple report` over records that make_record wrote: what is printed, the files, the refusals, the exit codes.
. "$HERE/lib.sh"
cd "$work" || exit 1

# wrong CODE "words" ARGUMENTS...: refused with nothing on stdout.
wrong() {
  local code=$1 words=$2
  shift 2
  "$MANIPLE" report "$@" >out 2>err
  refused $? "$code" "$words" "report $*"
}
mkdir -p runs/r1/jobs/1 runs/r1/jobs/2
"$RECORDER" a.h5 && "$RECORDER" b.h5 1.05 && "$RECORDER" other.h5 1 cccc || bad "no records"
"$RECORDER" slow.h5 1 aaaa 3 && cp a.h5 runs/r1/jobs/1/record.h5 && "$RECORDER" runs/r1/jobs/2/record.log || bad "no records"

say "summaries, of files and of a run directory"
reported "a.h5: generate, 4 ranks on 2 nodes (tp 2, dp 2), bf16|20, 0 failed|25.0 % of the held slots|6 repeats|not readable on any node" a.h5
reported "runs/r1: generate, 2 jobs, 4 ranks|40, 0 failed|job 2 did not end: read as far as it goes, to 40.0 s" runs/r1
reported "did not end" runs/r1/jobs/2/record.log
reported '"num_requests":20|"median_tpot_ms":50' --json - a.h5
(($(wc -l <out) == 1)) || bad "more than the JSON on stdout: $(cat out)"
reported "4 ranks" --json summary.json a.h5
grep -q '"output_throughput":540' summary.json || bad "no JSON in the file"
wrong 65 "summary.json|--overwrite" --json summary.json a.h5

say "comparisons and requirements"
reported "B/A 1.050 [|B is faster|not tested: repeats are the unit" --compare a.h5 b.h5
reported "no difference seen" --compare a.h5 slow.h5
wrong 65 "not comparable: the model differs (hash aaaa, hash cccc)|--force" --compare a.h5 other.h5
reported "# the model differs" --compare a.h5 other.h5 --force
reported "B is slower" --compare b.h5 a.h5 --require 'out_tok_per_s>=0.9x'
"$MANIPLE" report --compare b.h5 a.h5 --require 'out_tok_per_s>=0.98x' >out 2>err
(($? == 1)) || bad "a missed requirement did not end with 1: $(cat err)"
grep -q "missed: out_tok_per_s>=0.98x was wanted, 0.9524x: 251.2 against 263.8 was found" err || bad "not the numbers: $(cat err)"
grep -q "B is slower" out || bad "no table where a requirement is missed"
wrong 64 "--require (speed)" --require speed a.h5
wrong 64 "relative" --require 'out_tok_per_s>=0.9x' a.h5

say "steps, requests, a figure of merit"
reported "8-15|16-31|comm is in forward" --steps a.h5
reported "TTFT (ms)              195.0|# slowest" --requests a.h5
reported "fom: out_tok_per_s = 251.2 tokens/s" --fom a.h5

say "ranks"
reported "slow: rank 3 on n2: own time 1.2|from 10 s to 30 s|--exclude=n2|KV blocks: rank 2 on n2|max/mean" --ranks slow.h5
reported "slow: none" --ranks a.h5

say "CSV, scripts and plots"
reported "4 ranks" --csv tables a.h5
(($(wc -l <tables/requests.csv) == 21)) || bad "not a line of names and one for each of 20 requests"
head -1 tables/steps.csv | grep -q '^step,replica,weight,planned_s,' || bad "not the names of the fields: $(head -1 tables/steps.csv)"
wrong 65 "tables is not empty|--overwrite" --csv tables a.h5
reported "4 ranks" --csv tables a.h5 --overwrite
reported "2 jobs" --csv joined runs/r1
[[ -s joined/1-job-1/steps.csv && -s joined/1-job-2/steps.csv ]] || bad "not a folder for each job: $(ls joined)"
if command -v gnuplot >/dev/null; then
  reported "4 ranks" --svg "it's plots" a.h5
  for name in throughput steps latency kv_cache ranks; do
    [[ -s "it's plots/$name.gp" ]] || bad "no script of $name"
    grep -q '</svg>' "it's plots/$name.svg" || bad "no plot of $name"
    ! command -v xmllint >/dev/null || xmllint --noout "it's plots/$name.svg" || bad "$name.svg is no XML"
  done
fi
PATH=/nowhere "$MANIPLE" report --svg scripts a.h5 >out 2>err
(($? == 69)) || bad "without gnuplot it did not end with 69"
grep -q 'CSV and scripts are in scripts' err || bad "without gnuplot: $(cat err)"
[[ -s scripts/steps.gp && -s scripts/steps.csv && ! -e scripts/steps.svg ]] || bad "not CSV and scripts: $(ls scripts)"

say "a log is packed"
reported "did not end" --pack runs/r1
grep -q 'record.log is packed into' err || bad "packing is not said: $(cat err)"
[[ -s runs/r1/jobs/2/record.h5 ]] || bad "no record.h5"
reported "did not end" runs/r1/jobs/2/record.h5
! command -v h5dump >/dev/null || h5dump -H runs/r1/jobs/2/record.h5 >out || bad "h5dump does not read it"
if python3 -c 'import h5py' 2>/dev/null; then
  [[ $(python3 -c "import h5py; print(len(h5py.File('runs/r1/jobs/2/record.h5')['requests']))") == 20 ]] || bad "not 20 requests in h5py"
fi

say "bad input"
wrong 64 "report takes runs"
wrong 65 "has no record|run directory" "$work/tables"
wrong 65 "there is no record gone.h5" gone.h5
echo "text" >text.h5
wrong 65 "text.h5 is no log of a record" text.h5
wrong 65 "text.h5" --compare a.h5 text.h5

say "records of schema 1.0"
reported "requests    2, 0 failed|5 prompt tokens|7 output tokens" "$DATA/schema-1.0/record.h5"
reported "killed.h5.log did not end: read as far as it goes" "$DATA/schema-1.0/killed.h5.log"

say "under a launcher, once"
on 2 report a.h5 >out 2>err || bad "under mpirun: $(cat err)"
(($(grep -c "4 ranks on 2 nodes" out) == 1)) || bad "not printed once: $(cat out)"
finish
