# The record of a run: what is in it, for whom it can be read, and what is left of it when a job is killed.
. "$HERE/lib.sh"
python=/usr/bin/python3  # the one that Debian's h5py is for
usual=(generate --model "$model" --in "$HERE/prompts.jsonl" --seed 42 --max-tokens 24)
requests=$(wc -l <"$HERE/prompts.jsonl")

# python CODE...: with h5py's file as f.
h5py() { "$python" -c "import h5py, json, numpy; f = h5py.File('$1'); $2" 2>"$work/python" || bad "python: $2: $(tail -1 "$work/python")"; }

say "a run directory keeps a record of each job"
on 4 "${usual[@]}" --tp 2 --run-dir "$work/r1" 2>"$work/err"
(($? <= 1)) || bad "a run: $(cat "$work/err")"
record=$work/r1/jobs/1/record.h5
[[ -e $record && ! -e ${record%.h5}.log ]] || bad "no record, or its log is left: $(ls "$work/r1/jobs/1")"
[[ $("$python" -c "import h5py; print(len(h5py.File('$record')['requests']))") == "$requests" ]] || bad "not $requests requests"
h5dump -H "$record" >"$work/h5dump" || bad "h5dump does not read it"
for name in provenance topology steps requests ranks rank_series groups samples summary; do
  grep -Eq "(GROUP|DATASET) \"$name\"" "$work/h5dump" || bad "no /$name"
done
h5py "$record" "
assert all(len(f[t].attrs['units']) == len(f[t].dtype) for t in f if t != 'provenance')
p = {k: v[()].decode() for k, v in f['provenance'].items()}
for k in 'version git_commit compiler cpu_model mpi cuda nccl hdf5 command_line options model_hash input_hash seed repro_level environment started_utc ended_utc'.split(): assert p[k] or k == 'environment', k
o = json.loads(p['options'])
assert o['in_force']['tp'] == 2 and o['in_force']['data'] == 2 and o['given']['seed'] == '42' and p['seed'] == '42'
assert json.loads(p['config_json'])['architectures']
s, r, g = f['steps'][:], f['requests'][:], f['groups'][:]
assert (s['weight'] == 1).all() and set(s['replica']) == {0, 1} and s['weight'].sum() == len(s)
e = r['reason'] != b'error'
assert s['prompt_tokens'].sum() == (r['prompt'] - r['cached'])[e].sum() and s['sampled'].sum() == r['output'].sum()
assert (s['kv_tokens'] <= s['held_blocks'] * o['in_force']['block_size']).all() and (s['answered_s'] > s['planned_s']).all()
assert (r['queue_s'][e] >= 0).all() and (r['ttft_s'][e] > 0).all() and (r['e2e_s'] >= r['ttft_s'])[e].all()
assert list(f['topology']['tensor']) == [0, 1, 0, 1] and list(f['topology']['data']) == [0, 0, 1, 1]
assert sorted(f['ranks']['rank']) == [0, 1, 2, 3] and (f['ranks']['weight_bytes'] > 0).all() and (f['ranks']['rss_peak_bytes'] > f['ranks']['weight_bytes']).all()
assert set(g['op']) >= {b'all_reduce'} and (g['calls'] > 0).all() and (g['max_s'] <= g['seconds']).all()
m = {x['metric']: x['median'] for x in f['summary']}
assert m[b'requests'] == $requests and m[b'output_tokens'] == r['output'].sum() and abs(m[b'out_tok_per_s'] - m[b'output_tokens'] / m[b'seconds']) < 1e-6
assert f.attrs['schema'] == b'maniple-run' and f.attrs['complete'] == b'1'
"
on 4 "${usual[@]}" --tp 2 --run-dir "$work/off" --record off --quiet
[[ -z $(find "$work/off" -name 'record.[hl]*') ]] || bad "--record off records: $(find "$work/off" -name 'record.[hl]*')"
cmp "$work/r1/results.jsonl" "$work/off/results.jsonl" || bad "recording changes the results"

say "without a run directory only where it is asked for"
echo mine >"$work/one.log"
HF_TOKEN=abc SLURM_JWT=abcdef OMP_DYNAMIC=false on 1 "${usual[@]}" --out "$work/out" --record "$work/one.h5" --quiet
h5py "$work/one.h5" "
e = f['provenance']['environment'][()].decode()
assert 'OMP_DYNAMIC=false' in e and 'abc' not in e
assert len(f['requests']) == $requests"
on 1 "${usual[@]}" --out "$work/out2" --record "$work/one.h5" 2>"$work/err"
(($? == 65)) && grep -q 'one.h5 is there already' "$work/err" || bad "an existing record: $(cat "$work/err")"
[[ $(cat "$work/one.log") == mine ]] || bad "another file of a similar name is gone"
echo old >"$work/two.h5.log"
on 1 "${usual[@]}" --out "$work/out2" --record "$work/two.h5" 2>"$work/err"
(($? == 65)) && grep -q 'two.h5.log is there already' "$work/err" && [[ $(cat "$work/two.h5.log") == old ]] || bad "an existing log: $(cat "$work/err")"
on 1 "${usual[@]}" --out "$work/out2" --record "$work/./out2" 2>"$work/err"
(($? == 64)) && grep -q -- '--record and --out are the same file' "$work/err" || bad "the record in the results: $(cat "$work/err")"
on 1 "${usual[@]}" --out "$work/out2" --record "$work/nowhere/one.h5" 2>"$work/err"
(($? == 65)) && grep -q 'nowhere' "$work/err" || bad "a record in no folder: $(cat "$work/err")"
on 1 "${usual[@]}" --run-dir "$work/r2" --record "$work/two.h5" 2>"$work/err"
(($? == 64)) && grep -q -- '--record FILE does not go with --run-dir' "$work/err" || bad "--record with --run-dir: $(cat "$work/err")"

say "a failed request has a row, too"
printf '{"tokens":[5],"max_tokens":2}\n{"tokens":[999999]}\n' >"$work/in"
on 1 generate --model "$model" --in "$work/in" --out "$work/out3" --record "$work/failed.h5" --quiet
h5py "$work/failed.h5" "assert sorted(f['requests']['reason']) == [b'error', b'length']"

say "what a killed job leaves can be read, but for the last second"
for i in {1..400}; do printf '{"tokens":[%d],"max_tokens":200,"ignore_eos":true}\n' $((i % 60 + 5)); done >"$work/long"
start killed 1 generate --model "$model" --in "$work/long" --run-dir "$work/killed" --max-num-seqs 4
for ((i = 0; i < 300; i++)); do
  [[ -s $work/killed/jobs/1/record.log ]] && (($(stat -c %s "$work/killed/jobs/1/record.log") > 20000)) && break
  sleep 0.1
done
kill -KILL "$job"
wait "$job" 2>/dev/null
[[ -s $work/killed/jobs/1/record.log && ! -e $work/killed/jobs/1/record.h5 ]] || bad "the log of a killed job: $(ls "$work/killed/jobs/1")"

say "a disk that is full ends the record, not the job"
(ulimit -f 24 && on 1 generate --model "$model" --in "$work/in" --out "$work/out4" --record "$work/full.h5" --max-tokens 2) 2>"$work/err"
rc=$?
if ((rc == 1)); then grep -q 'the job goes on without it' "$work/err" || [[ -e $work/full.h5 ]] || bad "a full disk: $(cat "$work/err")"; else bad "a full disk: $rc: $(cat "$work/err")"; fi
[[ $(wc -l <"$work/out4") == 2 ]] || bad "a full disk: the results: $(cat "$work/out4")"
finish
