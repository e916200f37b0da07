# bench throughput and latency: lengths, repeats, JSON, records on every layout, comparisons, refusals, and that a stopped bench leaves nothing.
. "$HERE/lib.sh"
. "$HERE/bench_lib.sh"
say_cover

small=(throughput --model "$model" --lengths fixed:8/8 --num-prompts 12)

say "throughput: 1, 2 and 4 ranks, tp and dp"
for layout in "1 1" "2 1" "2 2" "4 2"; do
  read -r ranks tp <<<"$layout"
  bench "$ranks" 0 "${small[@]}" --tp "$tp" --record "$work/r$ranks-$tp.h5" --json "$work/t.json" --overwrite
  says "^# throughput $model: 12 requests at once, 96 tokens in, 96 out \(fixed:8/8, seed 0\); tp $tp, dp $((ranks / tp)), bf16; 6 repeats"
  says '^throughput  out [0-9.]+ tok/s \[[0-9.]+, [0-9.]+\]  total [0-9.]+ tok/s  6 repeats'
  says '^RESULT INVALID: ([0-9.]+ s, 10\.0 s wanted|probe drift .*)$'
  keeps "$work/r$ranks-$tp.h5" 'len(f["requests"]) == 12 * 6 and set(f["requests"]["output"]) == {8} == set(f["requests"]["prompt"])'
  keeps "$work/r$ranks-$tp.h5" 'sorted(f["requests"]["id"]) == list(range(72)) and sum(f["steps"]["sampled"]) == 72 * 8 and sum(f["requests"]["cached"]) == 0'
  keeps "$work/r$ranks-$tp.h5" "len(f['ranks']) == len(f['topology']) == $ranks and t('command') == 'bench throughput' and t('verdict') == 'INVALID' and t('exit_code') == '0'"
  keeps "$work/r$ranks-$tp.h5" 'len(values("out_tok_per_s")) == 6 and all(abs(o * e / 96 - 1) < 1e-9 for o, e in zip(values("out_tok_per_s"), values("elapsed_s")))'
  holds "$work/t.json" 'j["num_requests"] == 12 and j["total_num_tokens"] == 192 and j["elapsed_time"] > 0 and j["tokens_per_second"] > j["output_throughput"] > j["requests_per_second"]'
  holds "$work/t.json" 'all(j[f"{q}_{t}_ms"] > 0 for q in ("mean", "median", "p99") for t in ("ttft", "tpot", "e2el")) and j["median_of_p99_itl_ms"] >= j["median_of_p50_itl_ms"] > 0 and len(j["samples"]["out_tok_per_s"]["values"]) == 6'
done
keeps "$work/r4-2.h5" 'set(f["requests"]["replica"]) == {0, 1}'
"$MANIPLE" report "$work/r4-2.h5" | grep -q '^  verdict     INVALID: ' || bad "report does not say that the result is INVALID"
[[ -z $(find "$work" -name '*.log') ]] || bad "a log is left: $(ls "$work")"
# The elapsed time of a repeat, recomputed from the rows of its requests and of nothing else.
keeps "$work/r2-2.h5" 'all(abs(max(r["done_s"] for r in f["requests"] if r["id"] // 12 == k) - min(r["arrival_s"] for r in f["requests"] if r["id"] // 12 == k) - e) < 0.002 + 0.02 * e for k, e in enumerate(values("elapsed_s")))'

say "latency: a row for each batch size"
bench 2 0 latency --model "$model" --lengths uniform:4-9/2-6 --batch-size 1,4 --warmup 2 --repeats 3 --record "$work/l.h5" --json "$work/l.json"
says '^ +1 +[0-9.]+  \[-, -\]'
says '^ +4 +[0-9.]+ '
says '^# fom: e2e_p50_ms_batch_4 = [0-9.]+ ms'
says '^RESULT NOISY: too few repeats'
holds "$work/l.json" '[r["batch_size"] for r in j["rows"]] == [1, 4] and all(len(r["latencies"]) == 3 and abs(sum(r["latencies"]) / 3 - r["avg_latency"]) < 1e-12 for r in j["rows"])'
keeps "$work/l.h5" 'len(f["requests"]) == (1 + 4) * 3 and len(values("ttft_p50_ms_batch_4")) == 3 and sorted(f["requests"]["id"]) == list(range(15))'
keeps "$work/l.h5" 'all(list(f["requests"]["output"][[i for i, r in enumerate(f["requests"][:]) if r["id"] == k]]) == list(f["requests"]["output"][[i for i, r in enumerate(f["requests"][:]) if r["id"] == 0]]) for k in (1, 2, 3, 7, 11))'

# The probe of reads, of four times the caches, is not in the peak of memory.
keeps "$work/r2-1.h5" "max(f['ranks']['rss_peak_bytes']) < max(h5py.File('$work/l.h5')['ranks']['rss_peak_bytes']) + (32 << 20)"

say "workloads"
printf 'prompt,output\n5,3\n9,1\n300,200\n' >"$work/lengths.csv"
bench 1 0 throughput --model "$model" --lengths "$work/lengths.csv" --num-prompts 2 --repeats 1 --record "$work/csv.h5"
keeps "$work/csv.h5" 'sorted(zip(f["requests"]["prompt"], f["requests"]["output"])) == [(5, 3), (9, 1)]'
printf '{"prompt": "ROMEO:", "max_tokens": 7}\n{"id": "b", "tokens": [1, 2, 3], "max_tokens": 2}\n{"prompt": "O"}\n' >"$work/in.jsonl"
tokens=$("$MANIPLE" tokenize --model "$model" --special <<<'"ROMEO:"' | $python -c 'import json, sys; print(len(json.loads(sys.stdin.readline())["tokens"]))')
bench 2 0 throughput --model "$model" --in "$work/in.jsonl" --num-prompts 2 --repeats 1 --record "$work/in.h5"
keeps "$work/in.h5" "sorted(zip(f['requests']['prompt'], f['requests']['output'])) == sorted([($tokens, 7), (3, 2)])"
bench 1 0 latency --model "$model" --in "$work/in.jsonl" --batch-size 3 --repeats 1 --record "$work/in3.h5"
keeps "$work/in3.h5" 'max(f["requests"]["output"]) == 64'
bench 1 0 throughput --model "$model" --lengths sharegpt --num-prompts 6 --max-model-len 64 --repeats 1 --load random --record "$work/chat.h5"
keeps "$work/chat.h5" 'len(f["requests"]) == 6 and max(f["requests"]["prompt"] + f["requests"]["output"]) <= 64'
bench 1 0 latency --model "$model" --lengths fixed:9/1 --batch-size 2 --record "$work/one.h5"
keeps "$work/one.h5" 'len(values("ttft_p50_ms_batch_2")) == 6 and values("tpot_p50_ms_batch_2") == []'
# A shared prefix of a whole block is found again within a repeat, never from one repeat in the next.
bench 1 0 throughput --model "$model" --lengths fixed:40/4 --num-prompts 5 --prefix 32 --block-size 16 --max-num-seqs 1 --repeats 2 --record "$work/prefix.h5"
keeps "$work/prefix.h5" 'sorted(f["requests"]["cached"]) == [0, 0] + [32] * 8'

say "report"
"$MANIPLE" report "$work/r2-2.h5" >"$work/out" || bad "report of bench throughput"
says '^.*r2-2.h5: bench throughput, 2 ranks on 1 node \(tp 2, dp 1\), bf16'
[[ $(sed -n 4p "$work/out") =~ ^\ +out_tok_per_s\ .*\(6\ repeats ]] || bad "samples are not first: $(cat "$work/out")"
"$MANIPLE" report --compare "$work/r2-1.h5" "$work/r2-2.h5" >"$work/out" || bad "compare"
says '^out_tok_per_s +A .* B .* B/A [0-9.]+ \[[0-9.]+, [0-9.]+\] +\(n 6, 6\)'
bench 2 0 "${small[@]}" --seed 1 --tp 2 --record "$work/seed1.h5"
"$MANIPLE" report --compare "$work/r2-2.h5" "$work/seed1.h5" >"$work/out" 2>"$work/err"
refused $? 65 'not comparable: the input differs (hash|--force' "another seed is another workload"

say "bad input: one message, nothing measured"
# no RANKS CODE "words|of the message" options...
no() {
  local ranks=$1 code=$2 words=$3 rc
  shift 3
  on "$ranks" bench "$@" >"$work/out" 2>"$work/err"
  rc=$?
  refused $rc "$code" "$words" "bench $*"
}
no 2 64 '--lengths (fixed:0/1) must be fixed:128/128, uniform:64-512/16-256, sharegpt or FILE.csv' throughput --model "$model" --lengths fixed:0/1
no 1 64 '--lengths (fixd:1/1)|did you mean fixed?' latency --model "$model" --lengths fixd:1/1
no 1 64 '--repeats (0)' throughput --model "$model" --repeats 0
no 1 64 '--prefix (9) is above the longest prompt (8)' "${small[@]}" --prefix 9
no 2 65 'request 1 of the workload has 4096 prompt tokens and 9 output tokens, the model takes' throughput --model "$model" --lengths fixed:4096/9
no 2 65 'lengths.csv has 3 requests, 4 wanted' latency --model "$model" --lengths "$work/lengths.csv" --batch-size 4
no 1 65 'prompts.jsonl, request 19: token id 2048 is not in the vocabulary (0 to 2047)|take it out' throughput --model "$model" --in "$HERE/prompts.jsonl"
no 1 65 'nowhere.csv' throughput --model "$model" --lengths nowhere.csv
no 2 65 'r2-2.h5 is there already|--overwrite' "${small[@]}" --record "$work/r2-2.h5"
no 1 65 'cannot' "${small[@]}" --record "$work/nowhere/x.h5"
bench 2 69 throughput --model "$model" --lengths fixed:200/200 --num-prompts 2 --block-size 16 --kv-memory 100K --record "$work/refused.h5"
says 'request 1 of the workload is refused: 400 tokens need 25 kv blocks' err
(($(grep -c 'maniple: error:' "$work/err") == 1)) || bad "not one message: $(cat "$work/err")"
[[ -z $(find "$work" -name 'refused.h5*') ]] || bad "a refused workload left $(ls "$work")"

say "a stop keeps nothing"
long=(throughput --model "$model" --lengths fixed:64/64 --num-prompts 200 --repeats 1000)
begun() { [[ -s $work/stopped.h5.log ]]; }
# stopped CODE NAME: the job in $job ends with this code soon, without a file.
stopped() {
  local rc
  until_true 15 gone "$job" || bad "$2: still running"
  wait "$job"
  rc=$?
  ((rc == $1)) || bad "$2: exit code $rc, not $1: $(cat "$work/$2.err")"
  [[ -z $(find "$work" -name 'stopped.*' ! -name '*.err') ]] || bad "$2 left $(ls "$work")"
}
for signal in INT:130 TERM:143; do
  today 2 || continue
  start "rank0-${signal%:*}" 2 bench "${long[@]}" --record "$work/stopped.h5" --json "$work/stopped.json" >/dev/null
  find_ranks "$job" 2 && until_true 30 begun && kill "-${signal%:*}" "${ranks[0]}"
  stopped "${signal#*:}" "rank0-${signal%:*}"
done
start alone 1 bench "${long[@]}" --record "$work/stopped.h5" --walltime 4s --stop-before 2s >/dev/null
stopped 75 alone
# After kill -9 the log is there, and report reads it.
start killed 2 bench "${long[@]}" --record "$work/stopped.h5" >/dev/null
find_ranks "$job" 2 && until_true 30 begun && sleep 2
no 1 65 'stopped.h5.log is there already|--overwrite' "${small[@]}" --record "$work/stopped.h5"
kill -KILL "${ranks[0]}"
until_true 30 gone "$job" || bad "killed: still running"
"$MANIPLE" report "$work/stopped.h5" >"$work/out" 2>"$work/err" || bad "report of a killed bench: $(cat "$work/err")"
says 'did not end'
# The same command needs no --overwrite for what it left itself.
bench 1 0 "${small[@]}" --record "$work/stopped.h5"
says 'stopped.h5.log is of a bench that was killed; it is replaced' err
[[ -s $work/stopped.h5 && ! -e $work/stopped.h5.log ]] || bad "another bench left $(ls "$work")"
finish
