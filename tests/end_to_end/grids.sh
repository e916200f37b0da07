# The same bytes on every grid, with any batches, blocks, memory and threads; and the golden text of the demo model.
. "$HERE/lib.sh"
say_cover

# same_as EXPECTED RANKS options...: exit code 1, because one of the requests is refused on purpose. Half of the runs are today's, and those
# with `fixed=yes` before them; $skipped tells of the others.
fixed=
same_as() {
  skipped=
  [[ $fixed ]] || today 2 || { skipped=yes && return; }
  local expected=$1 ranks=$2
  shift 2
  say "same bytes: $ranks ranks $*"
  on "$ranks" generate --model "$model" --in "$HERE/prompts.jsonl" --out "$work/out" --overwrite --seed 42 --max-tokens 24 "$@" 2>"$work/err"
  local rc=$?
  ((rc == 1)) || bad "$ranks ranks $*: exit code $rc, not 1: $(cat "$work/err")"
  cmp "$expected" "$work/out" || bad "$ranks ranks $*: other results than one rank's"
}

# Checks in the output of the last run that the condition was met.
said() { [[ $skipped ]] || grep -Eq "$1" "$work/err" || bad "the last run did not say \"$1\": $(cat "$work/err")"; }

say "the results of one rank without mpirun"
on 1 generate --model "$model" --in "$HERE/prompts.jsonl" --seed 42 --max-tokens 24 >"$work/bf16" 2>"$work/err"
(($? == 1)) || bad "exit code: $(cat "$work/err")"
on 1 generate --model "$model" --in "$HERE/prompts.jsonl" --seed 42 --max-tokens 24 --dtype fp32 >"$work/fp32" 2>"$work/err"
(($(wc -l <"$work/bf16") == $(wc -l <"$HERE/prompts.jsonl"))) || bad "not one line for each request"
(($(grep -c '"error"' "$work/bf16") == 1)) || bad "not exactly one request was refused"
[[ $(sed 's/,.*//' "$work/bf16") == "$(sed 's/,.*//' "$HERE/prompts.jsonl")" ]] || bad "ids are not those of the input, in its order"
cmp -s "$work/bf16" "$work/fp32" && bad "bf16 and fp32 gave the same bytes: --dtype has no effect"
same_as "$work/bf16" 1 --threads 1
same_as "$work/bf16" 1 --max-num-seqs 1

same_as "$work/bf16" 2 --tp 2
same_as "$work/bf16" 4 --tp 4
fixed=yes same_as "$work/bf16" 8 --tp 8
for how in shared messages; do same_as "$work/bf16" 4 --tp 4 --all-reduce $how && said "sums by $how"; done
same_as "$work/fp32" 6 --tp 2 --pp 3 --dtype fp32 --all-reduce shared
if unshare -m true 2>/dev/null; then
  echo 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"' >"$work/small"
  OMPI_MCA_btl_vader_backing_directory=$work MPIRUN="unshare -m sh $work/small $MPIRUN" fixed=yes same_as "$work/bf16" 2 --tp 2 --all-reduce shared
  said 'warning: /dev/shm of .* free, and sums in it take 2.01 MiB'
  said 'sums by messages \(no shared memory\)'
fi
same_as "$work/bf16" 2 --tp 1
same_as "$work/bf16" 4 --tp 1
same_as "$work/bf16" 4 --tp 2
same_as "$work/bf16" 8 --tp 4
same_as "$work/bf16" 5 --pp 5
fixed=yes same_as "$work/bf16" 8 --tp 2 --pp 2
said '8 ranks = tensor 2 x pipeline 2 x data 2 \(layers 0-2 \| 3-4\)'
same_as "$work/fp32" 3 --pp 3 --dtype fp32 --max-num-seqs 5 --max-num-batched-tokens 7 --pp-steps 2
fixed=yes same_as "$work/bf16" 4 --tp 2 --pp 2 --pp-layers 1,4 --block-size 16 --max-num-batched-tokens 64 --kv-memory 1000K
said '[1-9][0-9]* preemption'
same_as "$work/fp32" 2 --tp 2 --dtype fp32
same_as "$work/fp32" 8 --tp 4 --dtype fp32 --block-size 16

same_as "$work/bf16" 2 --tp 2 --threads 2 --block-size 16
same_as "$work/bf16" 1 --block-size 16 --max-num-seqs 4
said '\([1-9][0-9]* cached\)'
same_as "$work/bf16" 1 --block-size 16 --max-num-seqs 4 --no-prefix-cache
said '\(0 cached\)'
same_as "$work/bf16" 2 --tp 1 --max-num-seqs 5 --max-num-batched-tokens 7
same_as "$work/bf16" 2 --tp 2 --max-num-seqs 5 --max-num-batched-tokens 64 --schedule prefill-first
for grid in "1 --kv-memory 2600K" "2 --tp 2 --kv-memory 1300K" "4 --tp 2 --kv-memory 1000K"; do
  same_as "$work/bf16" $grid --block-size 16 --max-num-batched-tokens 64 --max-num-seqs 24
  said '[1-9][0-9]* preemption'
done

say "a context shared by ranks: prompts of 600 and 2,300 tokens"
{ for words in 600 2300; do
  printf '{"id":%d,"tokens":[%s],"temperature":0.8,"logprobs":1}\n' $words "$(seq $words | awk '{ printf "%s%d", s, $1 * $1 % 2039; s = "," }')"
done; } >"$work/long"
long=(generate --model "$model" --in "$work/long" --seed 42 --max-tokens 24)
on 1 "${long[@]}" >"$work/long.1" 2>"$work/err" || bad "1 rank: $(cat "$work/err")"
on 8 "${long[@]}" --tp 8 --cp 2 --kv-memory 2M --max-num-seqs 4 --max-num-batched-tokens 300 >"$work/long.8" 2>"$work/err" || bad "8 ranks: $(cat "$work/err")"
cmp "$work/long.1" "$work/long.8" || bad "--cp 2 gave other results than one rank"
skipped=
said '8 ranks = tensor 8 \(context 2\) x data 1'
said 'KV cache: 6 blocks of 512 tokens'
printf '{"tokens":[%s],"temperature":0.8,"logprobs":1}\n' "$(seq -s, 1 380),$(seq -s, 1 380)" >"$work/long.kv1"
long=(generate --model "$DATA/models/tiny-qwen3-kv1" --in "$work/long.kv1" --seed 42 --max-tokens 20)
on 1 "${long[@]}" >"$work/kv1.1" 2>"$work/err" || bad "1 rank: $(cat "$work/err")"
for grid in "4 --tp 4 --cp 4" "4 --tp 2 --cp 2 --pp 2" "4 --tp 2 --cp 2"; do
  today 2 || continue
  on ${grid%% *} "${long[@]}" ${grid#* } >"$work/out" 2>"$work/err" || bad "$grid: $(cat "$work/err")"
  cmp "$work/kv1.1" "$work/out" || bad "$grid gave other results than one rank"
done

say "tokens only: a model without a tokenizer, with one KV head for two ranks"
printf '{"tokens":[1,2,3],"logprobs":2}\n{"tokens":[300,4,4,4,200,7],"temperature":0.9}\n' >"$work/tokens"
for ranks in 1 2; do
  on $ranks generate --model "$DATA/models/tiny-qwen3-kv1" --tp $ranks --in "$work/tokens" --seed 1 >"$work/kv1.$ranks" 2>"$work/err" ||
    bad "$ranks ranks: $(cat "$work/err")"
done
cmp "$work/kv1.1" "$work/kv1.2" || bad "two ranks gave other tokens"
grep -q '"text"' "$work/kv1.1" && bad "there is a text without a tokenizer"

say "the golden text and tokens of the demo model, greedy, fp32"
golden_requests "$work/golden.jsonl" "$work/golden"
for grid in "1" "4 --tp 2 --block-size 16"; do
  on ${grid%% *} generate ${grid#"${grid%% *}"} --model "$model" --in "$work/golden.jsonl" --temperature 0 --dtype fp32 >"$work/out" 2>"$work/err" ||
    bad "exit code: $(cat "$work/err")"
  sed 's/"finish_reason.*//' "$work/out" | cmp - "$work/golden" || bad "not the golden text on $grid"
done

say "a chat is served as the prompt that its template makes of it, fields in their order"
mkdir "$work/chatty"
cp "$model"/{config.json,generation_config.json,tokenizer.json} "$model"/*.safetensors "$work/chatty"
cat >"$work/chatty/chat_template.jinja" <<'END'
{% for m in messages %}{{ m.role | upper }}:
{{ m.content }}
{% endfor %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% if add_generation_prompt %}ROMEO:{% endif %}
END
cat >"$work/chat" <<'END'
{"custom_id":"1","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"juliet","content":"Speak."}],"tools":[{"z":1,"a":2}],"temperature":0,"max_tokens":64}}
{"custom_id":"2","url":"/v1/completions","body":{"model":"m","prompt":"JULIET:\nSpeak.\n{\"z\": 1, \"a\": 2}ROMEO:","temperature":0,"max_tokens":64}}
END
on 2 generate --model "$work/chatty" --tp 2 --in "$work/chat" >"$work/out" 2>"$work/err" || bad "exit code: $(cat "$work/err")"
sed -E 's/.*"(content|text)":("([^"\\]|\\.)*").*/\2/' "$work/out" | uniq | wc -l | grep -qx 1 || bad "not the same text: $(cat "$work/out")"
grep -q '"content":".*Speak' "$work/out" && bad "the prompt is in the answer"
finish
