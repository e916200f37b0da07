# Several answers to a request, and scores of given text: each against requests that ask for one thing, on several grids.
. "$HERE/lib.sh"

# served RANKS ARGUMENTS...: results in $work/out, stderr in $work/err.
served() { on "$1" generate --model "$model" --seed 5 --threads 1 "${@:2}" >"$work/out" 2>"$work/err" || bad "exit code ($*): $(cat "$work/err")"; }
python() { python3 - "$@" || bad "$1"; }

say "n answers are those of n requests with their seeds, on every grid, also where fewer run at once"
cat >"$work/several.jsonl" <<'END'
{"id":"a","prompt":"ROMEO:\nThou art","n":5,"temperature":0.9,"max_tokens":30,"logprobs":1,"stop":"th"}
{"id":"b","prompt":"ROMEO:\nThou art","n":3,"temperature":1.2,"seed":9,"max_tokens":9,"prompt_logprobs":1,"presence_penalty":1}
{"custom_id":"c","url":"/v1/completions","body":{"prompt":"JULIET:","n":2,"best_of":2,"max_tokens":12,"logprobs":2,"echo":true}}
{"custom_id":"d","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"Hi"}],"n":2,"max_tokens":7,"prompt_logprobs":1}}
END
served 1 --in "$work/several.jsonl" && cp "$work/out" "$work/several"
python "$work/several" "$work/several.jsonl" >"$work/single.jsonl" <<'END'
import json, sys

results, requests = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
for result, request in zip(results, requests):
    asked = request.get("body", request)
    choices = result["choices"] if "choices" in result else result["response"]["body"]["choices"]
    assert [choice["index"] for choice in choices] == list(range(asked["n"])), choices
    assert len({choice["seed"] for choice in choices}) == asked["n"], choices
    for choice in choices:
        one = {**asked, "n": 1, "seed": choice["seed"]}
        one.pop("best_of", None)
        if "body" in request:
            print(json.dumps({**request, "custom_id": f"{request['custom_id']}{choice['index']}", "body": one}))
        else:
            print(json.dumps({**one, "id": f"{request['id']}{choice['index']}"}))
END
served 1 --in "$work/single.jsonl" && cp "$work/out" "$work/single"
python "$work/several" "$work/single" <<'END'
import json, sys

several, single = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
singles = iter(single)
for result in several:
    body = result if "choices" in result else result["response"]["body"]
    completed = 0
    for choice in body["choices"]:
        one = next(singles)
        one = one if "tokens" in one else one["response"]["body"]
        completed += one["usage"]["completion_tokens"]
        rest = {name: value for name, value in choice.items() if name not in ("index", "seed")}
        same = one if "tokens" in one else one["choices"][0]
        assert rest == {name: same[name] for name in rest}, (rest, same)
        assert one.get("prompt_logprobs") == body.get("prompt_logprobs")
    assert body["usage"]["completion_tokens"] == completed
END
for layout in "1 1 --max-num-seqs 2" "2 2 --block-size 16" "2 1 --no-prefix-cache" "4 2 --max-num-batched-tokens 16"; do
  read -ra words <<<"$layout"
  served "${words[0]}" --tp "${words[@]:1}" --in "$work/several.jsonl"
  cmp "$work/out" "$work/several" || bad "other bytes on $layout"
done
served 1 --prompt "ROMEO:" --n 3 --temperature 1 --max-tokens 4
(($(grep -cE '^--- [123] ---$' "$work/out") == 3)) || bad "not three bare answers: $(cat "$work/out")"

say "scores of a text are those of its tokens one by one, and a continuation has their sum"
python "$work/score.jsonl" "$work/steps.jsonl" <<'END'
import json, sys

tokens = [(i * 37 + 11) % 2000 for i in range(40)]
with open(sys.argv[1], "w") as file:
    print(json.dumps({"id": "all", "tokens": tokens, "prompt_logprobs": 2, "max_tokens": 0}), file=file)
    print(json.dumps({"id": "part", "tokens": tokens[:30], "continuation": tokens[30:]}), file=file)
    print(json.dumps({"id": "listed", "tokens": tokens[:30], "continuation": tokens[30:], "prompt_logprobs": 2}), file=file)
    print(json.dumps({"custom_id": "echo", "url": "/v1/completions", "body": {"prompt": tokens, "echo": True, "logprobs": 2, "max_tokens": 0}}), file=file)
    for spaces in (("The king ", "is"), ("The king", " is")):
        print(json.dumps({"id": repr(spaces), "prompt": spaces[0], "continuation": spaces[1]}), file=file)
with open(sys.argv[2], "w") as file:
    for i in range(1, len(tokens)):
        step = {"id": i, "tokens": tokens[:i], "max_tokens": 1, "temperature": 0, "logprobs": 2, "ignore_eos": True}
        print(json.dumps({**step, "allowed_token_ids": [tokens[i]]}), file=file)
END
served 1 --in "$work/steps.jsonl" && cp "$work/out" "$work/steps"
served 1 --in "$work/score.jsonl" && cp "$work/out" "$work/scores"
python "$work/scores" "$work/steps" <<'END'
import json, sys

scores, steps = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
everything, part, listed, echo, *spaced = scores
steps = [step["logprobs"][0] for step in steps]
assert everything["tokens"] == [] and everything["finish_reason"] == "length"
assert everything["prompt_logprobs"] == [None] + steps
assert listed["prompt_logprobs"] == [None] * 30 + steps[29:]
assert "prompt_logprobs" not in part
behind = steps[29:]
import struct
def as_float(number):
    return struct.unpack("f", struct.pack("f", number))[0]
for result in (part, listed):
    assert result["continuation"]["tokens"] == 10
    assert result["continuation"]["logprob"] == sum(as_float(step["logprob"]) for step in behind), result
    assert result["continuation"]["greedy"] == all(step["token"] == step["top"][0]["token"] for step in behind)
lists = echo["response"]["body"]["choices"][0]["logprobs"]
assert lists["token_logprobs"] == [None] + [step["logprob"] for step in steps]
assert len(lists["text_offset"]) == 40 and lists["top_logprobs"][0] is None
assert spaced[0]["continuation"] == spaced[1]["continuation"]
END
for layout in "2 2 --max-num-batched-tokens 16" "2 1 --pp 2 --block-size 16"; do
  read -ra words <<<"$layout"
  served "${words[0]}" --tp "${words[@]:1}" --in "$work/score.jsonl"
  cmp "$work/out" "$work/scores" || bad "other scores on $layout"
done
served 1 --in "$work/several.jsonl" "$work/score.jsonl" --run-dir "$work/run"
cat "$work/several" "$work/scores" | cmp - "$work/run/results.jsonl" || bad "a run directory has other bytes"

say "what cannot be scored or answered is that request's error"
cat >"$work/wrong.jsonl" <<'END'
{"id":1,"prompt":"x","n":0}
{"id":2,"prompt":"x","n":257}
{"id":3,"prompt":"x","continuation":""}
{"id":4,"prompt":"","continuation":"x"}
{"id":5,"prompt":"x","prompt_logprobs":1025}
{"custom_id":"6","url":"/v1/completions","body":{"prompt":"x","n":2,"best_of":3}}
{"id":7,"prompt":"x","max_tokens":1}
END
on 1 generate --model "$model" --in "$work/wrong.jsonl" >"$work/out" 2>"$work/err"
(($? == 1)) || bad "exit code: $(cat "$work/err")"
(($(grep -c -e '^{"id":[1-5],"error":' -e '"response":null' "$work/out") == 6)) || bad "not six errors: $(cat "$work/out")"
printf '{"messages":[{"role":"user","content":"Hi"}],"continuation":"x"}\n' >"$work/wrong.jsonl"
on 1 generate --model "$model" --in "$work/wrong.jsonl" >"$work/out" 2>"$work/err"
refused $? 65 "line 1: continuation is" "a continuation of a chat"

finish
