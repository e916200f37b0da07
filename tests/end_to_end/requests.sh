# Input files: chats of any shape, text files, packed files, files of a wrong kind; and the summary of finish reasons.
. "$HERE/lib.sh"

# served ARGUMENTS...: one rank; results in $work/out, stderr in $work/err.
served() { on 1 generate --model "$model" "$@" >"$work/out" 2>"$work/err" || bad "exit code ($*): $(cat "$work/err")"; }
says() { grep -Fq -- "$1" "$work/err" || bad "no \"$1\": $(cat "$work/err")"; }
text_of() { sed -E 's/.*"(text|content)":("([^"\\]|\\.)*").*/\2/' "$1"; }

say "a chat is answered the same in both shapes, from the command line, and with its text in parts"
cat >"$work/chats.jsonl" <<'END'
{"id":"ours","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Who\nare you?"}]}
{"id":"parts","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"Who"},{"type":"text","text":"are you?"}]}]}
{"custom_id":"theirs","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Who\nare you?"}]}}
END
served --in "$work/chats.jsonl" --temperature 0 --seed 1 --max-model-len 200
grep -q '^{"id":"ours","text":"' "$work/out" || bad "not in our shape: $(cat "$work/out")"
(($(text_of "$work/out" | sort -u | wc -l) == 1)) || bad "three texts: $(cat "$work/out")"
text_of "$work/out" | head -1 >"$work/text"
cp "$work/out" "$work/alone"
on 2 generate --model "$model" --tp 2 --block-size 16 --in "$work/chats.jsonl" --temperature 0 --seed 1 --max-model-len 200 >"$work/out" 2>"$work/err"
cmp "$work/out" "$work/alone" || bad "another text on two ranks: $(cat "$work/err")"
served --prompt $'Who\nare you?' --chat --system "Be brief." --temperature 0 --max-model-len 200 --out "$work/answer"
text_of "$work/answer" | cmp - "$work/text" || bad "--prompt --chat: $(cat "$work/answer")"
grep -q "is raw text" "$work/err" && bad "a chat is no raw text: $(cat "$work/err")"

say "a chat without max_tokens goes on to the end of the context, of --max-tokens, or of the KV cache"
printf '{"id":1,"messages":[{"role":"user","content":"Hi"}],"ignore_eos":true}\n{"id":2,"prompt":"Hi","max_tokens":900,"ignore_eos":true}\n{"id":3,"tokens":[5],"max_tokens":2}\n' >"$work/long.jsonl"
completed() { sed -n "$1"'s/.*"prompt_tokens":\([0-9]*\),"completion_tokens":\([0-9]*\).*/\1 \2/p' "$work/out"; }
served --in "$work/long.jsonl" --seed 1 --max-model-len 150
read -r prompt answer < <(completed 1)
((prompt + answer == 150)) || bad "not to the end of the context: $prompt + $answer"
says "ended by: stop 0, length 3, error 0"
says "max_tokens of 1 request clipped to what the context of 150 tokens leaves"
says "2 requests ended at the end of the context of 150 tokens"
says "line 2 is raw text"
served --in "$work/long.jsonl" --seed 1 --max-model-len 150 --max-tokens 20
read -r prompt answer < <(completed 1)
((answer == 20)) || bad "--max-tokens 20 gave $answer"
head -1 "$work/long.jsonl" >"$work/one.jsonl"
served --in "$work/one.jsonl" --seed 1 --block-size 16 --kv-memory 1M
read -r prompt answer < <(completed 1)
((prompt + answer < 1000)) || bad "more than the KV cache holds: $prompt + $answer"
says "1 chat without max_tokens ended where the KV cache ends; for more: --kv-memory"

say "a run that began when chats had 64 tokens ends with them"
on 1 generate --model "$model" --in "$work/one.jsonl" --seed 1 --max-model-len 150 --run-dir "$work/run" 2>"$work/err" || bad "$(cat "$work/err")"
grep -q '"unlimited_chats": "1"' "$work/run/manifest.json" || bad "$(cat "$work/run/manifest.json")"
mkdir -p "$work/before/jobs/1"
echo null >"$work/before/jobs/1/record.json"
head -c 24 "$work/run/jobs/1/journal" >"$work/before/jobs/1/journal" # the request has begun
grep -v unlimited_chats "$work/run/manifest.json" | tr -d '\n' | sed 's/,\s*}/}/' >"$work/before/manifest.json"
on 1 generate --model "$model" --in "$work/one.jsonl" --seed 1 --max-model-len 150 --run-dir "$work/before" 2>"$work/err" || bad "$(cat "$work/err")"
grep -q '"completion_tokens":64}' "$work/before/results.jsonl" || bad "$(cat "$work/before/results.jsonl")"

say "a text file has a prompt a line, packed or not"
printf '\xef\xbb\xbfROMEO:\r\n\nJULIET: {\n' >"$work/prompts.txt"
printf '{"id":1,"prompt":"ROMEO:"}\n{"id":3,"prompt":"JULIET: {"}\n' >"$work/prompts.jsonl"
gzip -k "$work/prompts.txt"
served --in "$work/prompts.jsonl" --seed 1 --max-tokens 5 && cp "$work/out" "$work/expected"
for name in prompts.txt prompts.txt.gz; do
  served --in "$work/$name" --seed 1 --max-tokens 5
  cmp "$work/out" "$work/expected" || bad "$name: $(cat "$work/out")"
done
on 1 doctor --model "$model" --in "$work/prompts.txt" --quick >"$work/doctor" 2>&1
grep -Fq "ok: 2 requests in" "$work/doctor" || bad "doctor: $(cat "$work/doctor")"
cp "$work/prompts.jsonl" "$work/lines.txt"
served --in "$work/lines.txt" --chat --seed 1 --max-tokens 5
says "--chat changes nothing"
served --in "$work/prompts.txt" --chat --seed 1 --max-tokens 5
cmp -s "$work/out" "$work/expected" && bad "--chat changed nothing"
if command -v zstd >"$work/null"; then
  zstd -q "$work/prompts.jsonl"
  served --in "$work/prompts.jsonl.zst" --seed 1 --max-tokens 5
  cmp "$work/out" "$work/expected" || bad "zstd: $(cat "$work/out")"
fi

say "a file of another kind is named once, with what helps"
foreign() {  # WORDS: the message about $work/foreign
  on 1 generate --model "$model" --in "$work/foreign" >"$work/out" 2>"$work/err"
  (($? == 65)) || bad "exit code, not 65: $1"
  grep -Fq "$1" "$work/err" || bad "no \"$1\": $(cat "$work/err")"
  (($(wc -l <"$work/err") == 3)) || bad "not one block: $(cat "$work/err")"
}
printf '[\n  {"prompt": "a"}\n]\n' >"$work/foreign" && foreign "jq -c '.[]'"
iconv -f UTF-8 -t UTF-16 "$work/prompts.jsonl" >"$work/foreign" && foreign "iconv -f UTF-16 -t UTF-8"
printf '{"prompt":"a"}\n' | bzip2 >"$work/foreign" && foreign "bzip2 -dc"
say "a thought goes apart from its answer, the same on two ranks and in a run directory, and only where the model has marks for it"
cp -r "$model" "$work/thinker"
python3 - "$work/thinker" <<'END'
import json, sys  # the template opens the thought; what ends a speaker's name ends it

folder = sys.argv[1]
for name in ("tokenizer.json", "tokenizer_config.json"):
    text = open(f"{folder}/{name}").read()
    open(f"{folder}/{name}", "w").write(text.replace("<|endoftext|>", "<think>").replace("assistant\\\\n'", "assistant\\\\n<think>\\\\n'"))
tokenizer = json.load(open(f"{folder}/tokenizer.json"))
vocab = tokenizer["model"]["vocab"]
vocab["</think>"] = vocab.pop(":\u010a")
tokenizer["model"]["merges"] = [pair for pair in tokenizer["model"]["merges"] if pair != [":", "\u010a"]]
tokenizer["added_tokens"].insert(0, {**tokenizer["added_tokens"][0], "content": "</think>", "id": vocab["</think>"], "special": False})
json.dump(tokenizer, open(f"{folder}/tokenizer.json", "w"))
END
cat >"$work/thoughts.jsonl" <<'END'
{"id":1,"messages":[{"role":"user","content":"ROMEO:"}]}
{"id":2,"messages":[{"role":"user","content":"What is <think>?"}],"reasoning":"off"}
{"id":3,"prompt":"ROMEO:\nThou art"}
{"custom_id":"b","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"JULIET:"}],"max_tokens":3,"temperature":0}}
END
thinks() { on "$1" generate --model "$work/thinker" --in "$work/thoughts.jsonl" --seed 3 --max-tokens 40 --temperature 0 "${@:2}" >"$work/out" 2>"$work/err" || bad "exit code ($*): $(cat "$work/err")"; }
thinks 1 --reasoning auto
grep -Eq '^\{"id":1,"reasoning":"[^"]+","text":"","tokens"' "$work/out" || bad "no unclosed thought: $(cat "$work/out")"
grep -Eq '^\{"id":2,"text":"[^"]+","tokens"' "$work/out" || bad "not whole: $(cat "$work/out")"
grep -Eq '^\{"id":3,"reasoning":"[^"]+","text":"[^"]+","tokens"' "$work/out" || bad "no closed thought: $(cat "$work/out")"
grep -Eq '"content":null,"reasoning":("[^"]+"),"reasoning_content":\1\},"logprobs":null,"finish_reason":"length"' "$work/out" || bad "no message with a thought: $(cat "$work/out")"
cp "$work/out" "$work/expected"
thinks 2 --tp 2 --reasoning qwen3
cmp "$work/out" "$work/expected" || bad "another text on two ranks: $(cat "$work/out")"
thinks 1 --reasoning auto --run-dir "$work/thoughts"
cmp "$work/thoughts/results.jsonl" "$work/expected" || bad "another text in the run directory: $(cat "$work/thoughts/results.jsonl")"
on 1 generate --model "$work/thinker" --in "$work/thoughts.jsonl" --seed 3 --max-tokens 40 --temperature 0 --run-dir "$work/thoughts" >"$work/out" 2>"$work/err"
refused $? 65 "reasoning" "a run that was begun with --reasoning"
on 1 generate --model "$model" --in "$work/one.jsonl" --reasoning think >"$work/out" 2>"$work/err"
refused $? 65 "no marks of thoughts as --reasoning think has them" "--reasoning think"
served --prompt "ROMEO:" --reasoning auto --seed 1 --max-tokens 5
says "--reasoning auto changes nothing"

finish
