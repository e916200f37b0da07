# A packed model gives the bytes of its directory, comes back byte for byte, survives kills of its conversion, and is refused when it is damaged.
. "$HERE/lib.sh"
say_cover
RANDOM=${SEED:-$$}
say "SEED=${SEED:-$$}"

convert() { "$MANIPLE" convert "$@" >"$work/out" 2>"$work/err"; }

say "every model there and back"
for name in shakespeare tiny-qwen3 tiny-qwen3-kv1 tiny-qwen2 tiny-llama3 tiny-mistral q-int8 q-gptq-act q-fp8-block q-moe-fp8-channel; do
  convert "$DATA/models/$name" "$work/$name.h5" || bad "$name: $(cat "$work/err")"
  convert "$work/$name.h5" "$work/$name.back/" || bad "$name back: $(cat "$work/err")"
  diff -r "$DATA/models/$name" "$work/$name.back" || bad "$name: other files"
  convert --check "$work/$name.h5" || bad "$name --check: $(cat "$work/err")"
done
packed=$work/shakespeare.h5

say "the same completions on every grid"
usual=(generate --in "$HERE/prompts.jsonl" --seed 42 --threads 1)
on 1 "${usual[@]}" --model "$model" >"$work/expected" 2>"$work/err"
for grid in "1 1" "2 2" "2 1" "4 4" "4 2"; do
  today 2 || continue
  read -r ranks tp <<<"$grid"
  on "$ranks" "${usual[@]}" --model "$packed" --tp "$tp" --out "$work/got" --overwrite 2>"$work/err"
  cmp "$work/expected" "$work/got" || bad "$ranks ranks, tp $tp: $(cat "$work/err")"
done
"$MANIPLE" tokenize --model "$packed" --in <(echo '"ROMEO"') >"$work/got" 2>"$work/err" || bad "tokenize: $(cat "$work/err")"
cmp <("$MANIPLE" tokenize --model "$model" --in <(echo '"ROMEO"')) "$work/got" || bad "tokenize: other tokens"

say "tiktoken.model goes with the model"
mkdir "$work/kimi" && ln -s "$model"/{config.json,model.safetensors} "$work/kimi"
cp "$DATA/tokenizers/kimi-style/"{tiktoken.model,tokenizer_config.json} "$work/kimi"
convert "$work/kimi" "$work/kimi.h5" || bad "kimi: $(cat "$work/err")"
for each in kimi kimi.h5; do
  "$MANIPLE" tokenize --model "$work/$each" --in <(echo '"ROMEO, 12345<|im_end|>"') >"$work/$each.ids" 2>"$work/err" || bad "tokenize $each: $(cat "$work/err")"
  grep -q 1202 "$work/$each.ids" || bad "tokenize $each: no <|im_end|>"
done
cmp "$work/kimi.ids" "$work/kimi.h5.ids" || bad "tokenize kimi: other tokens when packed"
echo "enp6enp6 3000" >>"$work/kimi/tiktoken.model"
"$MANIPLE" tokenize --model "$work/kimi" --in <(echo '"a"') >"$work/out" 2>"$work/err"
refused $? 65 "tokens have ranks up to 3000" "a rank too many"
printf 'AB=3000\n' >>"$work/kimi/tiktoken.model"
"$MANIPLE" tokenize --model "$work/kimi" --in <(echo '"a"') >"$work/out" 2>"$work/err"
refused $? 65 "line 1202|kimi/tiktoken.model" "a broken line"

say "a run directory begun with one goes on with the other"
on 1 "${usual[@]}" --model "$model" --run-dir "$work/run" 2>"$work/err"
rm "$work/run/STATUS"
journal=$work/run/jobs/1/journal
truncate --size=$(($(stat -c %s "$journal") * 2 / 3)) "$journal"
mv "$work/run/results.jsonl" "$work/whole"
on 2 "${usual[@]}" --model "$packed" --tp 2 --run-dir "$work/run" 2>"$work/err"
cmp "$work/whole" "$work/run/results.jsonl" || bad "resumed with the packed model: $(cat "$work/err")"

# Where Debian's h5py is: every tensor has the numbers of its safetensors file.
if /usr/bin/python3 -c 'import h5py, numpy' 2>/dev/null; then
  say "h5py shows the numbers of the safetensors file"
  for name in shakespeare tiny-qwen2; do
    /usr/bin/python3 - "$DATA/models/$name/model.safetensors" "$work/$name.h5" <<'PYTHON' || bad "$name: other numbers in h5py"
import json, struct, sys
import h5py, numpy
data = open(sys.argv[1], 'rb').read()
size = struct.unpack('<Q', data[:8])[0]
header, data = json.loads(data[8:8 + size]), data[8 + size:]
tensors = h5py.File(sys.argv[2], 'r')['tensors']
header.pop('__metadata__', None)
assert sorted(header) == sorted(tensors), (sorted(header), sorted(tensors))
for name, entry in header.items():
    raw = data[slice(*entry['data_offsets'])]
    if entry['dtype'] == 'BF16':
        expected = (numpy.frombuffer(raw, '<u2').astype('<u4') << 16).view('<f4')
    else:
        expected = numpy.frombuffer(raw, {'F32': '<f4', 'F16': '<f2'}[entry['dtype']])
    stored = tensors[name]
    got = numpy.empty(stored.shape, '<f4')
    stored.read_direct(got)
    assert numpy.array_equal(got.reshape(-1), expected.astype('<f4')), name
PYTHON
  done
fi
if command -v h5dump >/dev/null; then
  h5dump -d /tensors/model.norm.weight "$work/tiny-qwen3.h5" >"$work/dump" 2>&1 || bad "h5dump: $(cat "$work/dump")"
  h5dump -H "$packed" >"$work/dump" 2>&1 && grep -q '"schema_version"' "$work/dump" || bad "h5dump -H: $(tail -3 "$work/dump")"
fi

say "kills of the conversion"
big=$work/big
mkdir "$big"
header='{"t0":{"dtype":"BF16","shape":[1024,2048],"data_offsets":[0,4194304]}'
for ((i = 1; i < 24; i++)); do header+=$(printf ',"t%d":{"dtype":"BF16","shape":[1024,2048],"data_offsets":[%d,%d]}' $i $((i << 22)) $(((i + 1) << 22))); done
header+='}'
{
  # shellcheck disable=SC2059
  printf "\\x$(printf %x $((${#header} & 255)))\\x$(printf %x $((${#header} >> 8)))\\0\\0\\0\\0\\0\\0"
  printf %s "$header"
  head -c $((96 << 20)) /dev/urandom
} >"$big/model.safetensors"
echo '{}' >"$big/config.json"
convert "$big" "$work/undisturbed.h5" || bad "a random model: $(cat "$work/err")"
killed=0
# kill_convert TARGET FROM: begins it 12 times, and kills it after up to 0.09 s; what was made of it is removed.
kill_convert() {
  for ((round = 0; round < 12; round++)); do
    "$MANIPLE" convert "$2" "$1" --threads 1 2>"$work/err" &
    victim=$!
    sleep 0.0$((RANDOM % 9))$((RANDOM % 10))
    kill -KILL "$victim" 2>/dev/null && wait "$victim" 2>/dev/null
    (($? == 137)) && killed=$((killed + 1))
    rm -rf "$1"
  done
}
kill_convert "$work/killed.h5" "$big"
echo "a log of maniple 0.3" >"$work/killed.h5.progress"
convert "$big" "$work/killed.h5" || bad "after kills: $(cat "$work/err")"
cmp "$work/undisturbed.h5" "$work/killed.h5" || bad "after $killed kills: another file"
((killed > 0)) || bad "nothing was killed"
convert --check "$work/killed.h5" || bad "after kills: $(cat "$work/err")"
[[ -e $work/killed.h5.part || -e $work/killed.h5.progress ]] && bad "files are left: $(ls "$work")"
killed=0
kill_convert "$work/back" "$work/killed.h5"
((killed > 0)) || bad "no way back was killed"
mkdir -p "$work/back.part" && echo "of another model" >"$work/back.part/tokenizer.json" && touch "$work/back.progress"
convert "$work/killed.h5" "$work/back" || bad "the way back after $killed kills: $(cat "$work/err")"
diff -r "$big" "$work/back" || bad "other files came back after $killed kills"
[[ -e $work/back.part || -e $work/back.progress ]] && bad "files are left: $(ls "$work")"

# refuses CODE WORDS arguments...
refuses() {
  local code=$1 words=$2
  shift 2
  timeout 60 "$MANIPLE" "$@" >"$work/out" 2>"$work/err" </dev/null
  refused $? "$code" "$words" "$*"
}
generate=(generate --prompt x --max-tokens 2 --model)

say "damaged files"
byte_at() { od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' '; }
flip() {  # FILE OFFSET
  printf "\\x$(printf %x $(($(byte_at "$1" "$2") ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
damaged=$work/damaged.h5
echo 'a text' >"$damaged"
refuses 65 "damaged.h5 is no model file: it is text" "${generate[@]}" "$damaged"
: >"$damaged"
refuses 65 "damaged.h5 is no model file: it is empty" "${generate[@]}" "$damaged"
size=$(stat -c %s "$packed")
for ((i = 0; i < 20; i++)); do
  cp "$packed" "$damaged"
  truncate --size=$((RANDOM * 32768 % size)) "$damaged"
  refuses 65 "damaged.h5 is no model file" "${generate[@]}" "$damaged"
done
cp "$packed" "$damaged"
truncate --size=$((size / 2)) "$damaged"
refuses 65 "it is truncated: $((size / 2)) bytes, and maniple convert wrote $size" "${generate[@]}" "$damaged"
for ((i = 0; i < 56; i += 5)); do
  cp "$packed" "$damaged"
  flip "$damaged" $i
  refuses 65 "damaged.h5" "${generate[@]}" "$damaged"
done
chunk=$(grep -abo '"model.layers.2.mlp.up_proj.weight":{"chunk":\[[0-9]*,[0-9]*\],"offsets":\[[0-9,]*' "$packed" | sed 's/.*\[//')
cp "$packed" "$damaged"
flip "$damaged" "$(cut -d, -f4 <<<"$chunk")"
refuses 65 "damaged.h5: tensor model.layers.2.mlp.up_proj.weight, chunk 3: the checksum differs" "${generate[@]}" "$damaged"
refuses 65 "damaged.h5: tensor model.layers.2.mlp.up_proj.weight, chunk 3: the checksum differs|run maniple convert again" convert --check "$damaged"
# Ranks of a replica, and replicas, read a chunk in turn; one of those that keep it compares its checksum.
for grid in "2 2" "2 1" "4 2" "3 1"; do
  read -r ranks tp <<<"$grid"
  on "$ranks" "${generate[@]}" "$damaged" --tp "$tp" >"$work/out" 2>"$work/err"
  refused $? 65 "up_proj.weight, chunk 3: the checksum differs" "$ranks ranks, tp $tp"
done
if command -v h5repack >/dev/null; then
  h5repack -f GZIP=1 "$packed" "$work/repacked.h5"
  refuses 65 "repacked.h5 was rewritten by another program: its index does not hold" "${generate[@]}" "$work/repacked.h5"
  h5repack "$packed" "$work/repacked.h5"
  refuses 65 "repacked.h5 was rewritten by another program: its index does not hold" "${generate[@]}" "$work/repacked.h5"
fi
mkfifo "$work/fifo.h5"
refuses 65 "fifo.h5 is not a regular file" "${generate[@]}" "$work/fifo.h5"

say "a packed model of schema 1.0"
convert "$DATA/schema-1.0/model.h5" "$work/of-1.0" || bad "schema 1.0: $(cat "$work/err")"
(cd "$work/of-1.0" && sha256sum --quiet --check) <<'SUMS' || bad "another model came back from schema 1.0"
135d77c8c150d27a75bddf66595a974a592b5115412a9e5962e82e76efb33255  config.json
1f72e5f13f8fb35983f538ec39470942fd85f2c04a21fd6fcfa20f75ef106d63  model.safetensors
SUMS
printf '{"tokens":[5,6,7],"max_tokens":4}\n' >"$work/one.jsonl"
for old in "$DATA/schema-1.0/model.h5" "$work/of-1.0"; do
  "$MANIPLE" generate --model "$old" --in "$work/one.jsonl" --temperature 0 --quiet
done >"$work/out" || bad "schema 1.0 does not run"
[[ $(sort -u "$work/out" | wc -l) == 1 && $(wc -l <"$work/out") == 2 ]] || bad "schema 1.0 runs otherwise: $(cat "$work/out")"

say "targets that are refused"
cp -r "$DATA/models/tiny-qwen3" "$work/mine"
refuses 65 "tiny-qwen3.h5 exists|--overwrite" convert "$work/mine" "$work/tiny-qwen3.h5"
convert "$work/mine" "$work/tiny-qwen3.h5" --overwrite || bad "--overwrite: $(cat "$work/err")"
refuses 65 "is in its own source" convert "$work/mine" "$work/mine/m.h5"
refuses 65 "tiny-qwen3.back exists|--overwrite" convert "$work/tiny-qwen3.h5" "$work/tiny-qwen3.back"
convert "$work/tiny-qwen3.h5" "$work/tiny-qwen3.back" --overwrite || bad "--overwrite of a folder: $(cat "$work/err")"
mkdir "$work/other" && touch "$work/other/precious"
refuses 65 "other is no model" convert "$work/tiny-qwen3.h5" "$work/other" --overwrite
[[ -e $work/other/precious ]] || bad "another folder was replaced"
refuses 65 "does not exist" convert "$work/nowhere" "$work/n.h5"
refuses 64 "convert takes a model and its target" convert "$work/mine"
refuses 64 "--shards (0)" convert "$work/mine" "$work/n.h5" --shards 0
finish
