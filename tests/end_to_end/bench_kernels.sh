# bench kernels, the probes, MFU and MBU: tables, JSON and records on 1 and 2 ranks, counts by hand, refusals, and that a stopped bench leaves nothing.
. "$HERE/lib.sh"
. "$HERE/bench_lib.sh"

short=(kernels --model "$model" --warmup 0 --repeats 1)

say "kernels: the shard of the job's own tensor size"
for tp in 1 2; do
  bench "$tp" 0 "${short[@]}" --tp "$tp" --json "$work/tp$tp.json" --record "$work/tp$tp.h5"
  says '^# probe: product [0-9.]+ GFLOP/s, read [0-9.]+ GB/s, of a rank$'
  says "^# tp $tp: 5 of 5 layers, bf16, random weights; .*1 repeat, median \[95 % CI\]$"
  says '^ +layer +2048 +- +[0-9.]+  \[-, -\] +[0-9.]+ +[0-9.]+  [0-9]+ % (product|read)$'
  says '^ +prefill +512 +1024 +[0-9.]+ '
  says "^# host: steps of decoding sequences without a model; 1 replica of tp $tp; 1 repeat, median \[95 % CI\]$"
  says '^ +host +128 +- +[0-9.]+  \[-, -\] +- +-  -$'
  # Without a model a step takes microseconds; two processes on one core wait for each other.
  holds "$work/tp$tp.json" "0 < row($tp, 'host', 1, 0)['time_us'] < 50000 and row($tp, 'host', 8, 0)['of_probe'] is None"
  says '^RESULT (NOISY: too few repeats|INVALID: probe drift)'
  # 983,040 products in a layer, 524,288 in the head, 8 heads of 64, 4 KV heads: all but the norms are halved by tp 2.
  holds "$work/tp$tp.json" "len(j['rows']) == 50 and all(r['time_us'] > 0 for r in j['rows']) and all(r['flops'] > 0 and r['bytes'] > 0 and r['of_probe'] > 0 for r in j['rows'] if r['part'] != 'host')"
  holds "$work/tp$tp.json" "row($tp, 'layer', 16, 0)['flops'] == 2 * 983040 * 16 / $tp and row($tp, 'head', 8, 0)['flops'] == 2 * 524288 * 8 / $tp"
  holds "$work/tp$tp.json" "row($tp, 'decode', 8, 1024)['flops'] == 4 * 512 * 8 * 1024 / $tp and row($tp, 'decode', 8, 1024)['bytes'] == 8 * 1024 * 1024 / $tp"
  holds "$work/tp$tp.json" "row($tp, 'prefill', 512, 1024)['flops'] == 4 * 512 * (512 * 1024 + 512 * 513 / 2) / $tp and row($tp, 'prefill', 512, 1024)['bytes'] == 1536 * 1024 / $tp"
  holds "$work/tp$tp.json" "row($tp, 'layer', 1, 0)['bytes'] == 2 * 983040 / $tp + 4 * 640 + 2 * 1024 / $tp and j['gemm_tflop_s'] > 0 and j['read_gb_s'] > 0"
  keeps "$work/tp$tp.h5" "len(f['kernels']) == 50 and set(f['kernels']['tensor']) == {$tp} and min(f['kernels']['time_s']) > 0 and f['kernels'].attrs['units'] is not None"
  keeps "$work/tp$tp.h5" "sorted((r['when'].decode(), r['rank']) for r in f['roofline']) == [(w, k) for w in ('after', 'before') for k in range($tp)] and min(f['roofline']['flops_per_s']) > 0 and min(f['roofline']['read_bytes_per_s']) > 0"
done
bench 1 0 "${short[@]}" --shapes-of-tp 1,4 --dtype fp32 --backend cpu --json "$work/shapes.json"
says '^# tp 4: 5 of 5 layers, fp32, random weights; 1 rank, times of the slowest'
holds "$work/shapes.json" 'len(j["rows"]) == 96 and row(1, "layer", 16, 0)["flops"] == 4 * row(4, "layer", 16, 0)["flops"]'

say "throughput: MFU and MBU from the rows of the steps"
bench 2 0 throughput --model "$model" --lengths uniform:5-90/3-40 --num-prompts 24 --tp 2 --repeats 2 --record "$work/t.h5" --json "$work/t.json"
says '^throughput  out .* \| MFU [0-9.]+ % of [0-9.]+ TFLOP/s  MBU [0-9.]+ % of [0-9.]+ GB/s \(probe drift -?[0-9.]+ %\)$'
total="sum(m * e for m, e in zip(values('%s'), values('elapsed_s'))) * sum(r['%s'] for r in f['roofline'] if r['when'] == b'before')"
# shellcheck disable=SC2059
flops=$(printf "$total" mfu flops_per_s) bytes=$(printf "$total" mbu read_bytes_per_s)
keeps "$work/t.h5" "abs($flops / float(2 * 4915200 * sum(f['steps']['tokens']) + 2 * 524288 * sum(f['steps']['sampled']) + 4 * 5 * 512 * sum(f['steps']['attended'])) - 1) < 1e-6"
keeps "$work/t.h5" "abs($bytes / float(10892800 * sum(f['steps']['weight']) + 5120 * (sum(f['steps']['context']) + 2 * sum(f['steps']['tokens']))) - 1) < 1e-6"
# Each computed token sees those before it, whatever the steps were.
keeps "$work/t.h5" "sum(f['steps']['attended']) == sum(n * (n + 1) // 2 for n in (int(r['prompt']) + int(r['output']) - 1 for r in f['requests']))"
holds "$work/t.json" 'j["mfu"] > 0 and j["mbu"] > 0 and j["gemm_tflop_s"] > 0 and j["read_gb_s"] > 0 and len(j["samples"]["mfu"]["values"]) == 2'

say "bad input: one message, nothing measured"
# no RANKS CODE "words|of the message" options...
no() {
  local ranks=$1 code=$2 words=$3 rc
  shift 3
  on "$ranks" bench "$@" >"$work/out" 2>"$work/err"
  rc=$?
  refused $rc "$code" "$words" "bench $*"
}
no 1 64 'no model was given' kernels
no 1 64 '--shapes-of-tp (0)' kernels --model "$model" --shapes-of-tp 0
no 1 64 'both --tp and --shapes-of-tp were given' kernels --model "$model" --tp 2 --shapes-of-tp 2
no 1 64 '--shapes-of-tp does not go with bench comm|bench kernels' comm --shapes-of-tp 2
no 1 65 'attention heads (8) do not divide by tensor ranks (3)' kernels --model "$model" --shapes-of-tp 1,3
no 2 64 'ranks (2) do not divide by --tp 3' kernels --model "$model" --tp 3

say "a stop keeps nothing"
start stopped 1 bench kernels --model "$model" --repeats 1000 --record "$work/stopped.h5" --json "$work/stopped.json" >"$work/table"
measuring() { grep -q '^# tp 1' "$work/table"; }
until_true 60 measuring && kill -INT "$job"
until_true 20 gone "$job" || bad "a stopped bench goes on"
wait "$job"
rc=$?
((rc == 130)) || bad "a stopped bench: exit code $rc: $(cat "$work/stopped.err")"
[[ -z $(find "$work" -name 'stopped.*' ! -name '*.err') ]] || bad "a stopped bench left $(ls "$work")"
finish
