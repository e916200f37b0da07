#!/usr/bin/env python3
"""Chat templates of published models on random conversations: the prompts of `maniple tokenize --chat` beside those of transformers.

usage: published_templates.py --templates DIR [--program PATH] [--tokenizer TOKENIZER.json] [--conversations N] [--seed N]

DIR holds templates, NAME.jinja (none of them is in this repository: their licences are their own). Where transformers raise, maniple must refuse.
A list of parts may also reach the template as one text, as it does where the template reads no parts. Needs Python with transformers and jinja2."""

import argparse
import itertools
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from transformers import PreTrainedTokenizerFast

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
TEXTS = ["Hello", "", " \n", "What is 2+2?\n", "  leading and trailing  ", "日本語 é e\u0301 👩‍👩‍👧 \u2028\u0085\u00a0", "<b>\"quoted\" & 'single'</b> \\n {{ x }} {% y %}",
         "/no_think Hi", "<tool_response>\nx\n</tool_response>", "<think>\nHm.\n</think>\n\nFour.", "<think>unfinished", "no start</think> end", "line\r\nline\n\n\nline",
         "[TOOL_CALLS] [/INST] <|im_end|> <|channel|>analysis<|message|>", "1", "true", "null", "{\"a\": [1, 2.0]}", "x" * 300]
ARGUMENTS = [{}, {"city": "Paris"}, {"city": "São \"Paulo\" <x>\n", "days": 2, "exact": True, "unit": None, "share": 0.1, "far": 1e-7, "large": 1e16, "whole": 2.0},
             {"deep": {"list": [1, [2, {"k": "é"}], []], "empty": {}, "none": None}, "text": " {\"json\": 1} "}, {"items": [1, 2], "keys": "k", "values": {}, "get": 0}]
PARAMETERS = {"type": "object", "required": ["city"], "properties": {
    "city": {"type": "string", "description": "as in Łódź & <São Paulo>", "enum": ["Paris", "Łódź"]}, "days": {"type": "integer", "default": 1, "minimum": 0.5},
    "unit": {"type": ["string", "null"], "nullable": True}, "deep": {"type": "object", "properties": {"k": {"type": "array", "items": {"type": "number"}}}},
    "any": {"anyOf": [{"type": "string"}, {"type": "boolean", "description": ""}]}, "bare": {}}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather,\n\"now\".", "parameters": PARAMETERS, "strict": False}},
         {"type": "function", "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}}},
         {"type": "function", "function": {"name": "bare"}}, {"name": "flat", "description": "of no type", "parameters": PARAMETERS}]
VARIABLES = [{}, {"enable_thinking": True}, {"enable_thinking": False}, {"thinking": True}, {"thinking": False}, {"reasoning_effort": "high"}, {"reasoning_effort": "low"},
             {"reasoning_effort": "no_think", "interleaved_thinking": True}, {"clear_thinking": False, "preserve_thinking": True}, {"model_identity": "You are Ω."},
             {"builtin_tools": ["browser", "python"], "date_string": "1 May 2030", "tools_in_user_message": False}, {"documents": [{"title": "T", "text": "é\n"}]},
             {"add_vision_id": True, "keep_all_reasoning": True, "thinking_mode": "thinking"}]


def random_content(rng):
    texts = [rng.choice(TEXTS) for _ in range(rng.randint(1, 3))]
    return rng.choice([texts[0], texts[0], texts[0], [{"type": "text", "text": text} for text in texts]])


def random_calls(rng, number, strange):
    calls = []
    for index in range(rng.choice([1, 1, 2, 3])):
        function = {"name": rng.choice(TOOLS[:3])["function"]["name"], "arguments": rng.choice(ARGUMENTS)}
        if strange and rng.random() < 0.2:
            function["arguments"] = json.dumps(function["arguments"])
        identity = rng.choice([f"call{number:02}{index:03}", f"functions.{function['name']}:{index}"][:1 + strange])
        call = {"id": identity, "type": "function", "function": function}
        calls.append(rng.choice([call, call, {"function": function}, {"id": identity, **function}]) if strange else call)
    return calls


def random_turn(rng, number, strange):
    thought = {} if rng.random() < 0.6 else {rng.choice(["reasoning_content", "reasoning_content", "reasoning", "thinking"]): rng.choice(TEXTS + [None])}
    yield {"role": "user", "content": random_content(rng)}
    while rng.random() < 0.3:
        calls = random_calls(rng, number, strange)
        content = rng.choice([{"content": ""}, {"content": None}, {"content": random_content(rng)}, {}][:2 + 2 * strange])
        yield {"role": "assistant", **content, **thought, "tool_calls": calls}
        for call in calls:
            result = {"role": "tool", "name": call.get("function", call)["name"], "tool_call_id": call.get("id", "none"), "content": random_content(rng)}
            if strange:
                result.pop(rng.choice(["name", "tool_call_id", "no field"]), None)
                result["content"] = rng.choice([result["content"]] * 3 + [{"sky": "clear", "n": 1.0}])
            yield result
    if not strange or rng.random() < 0.85:
        yield {"role": "assistant", "content": random_content(rng), **thought, **rng.choice([{}, {}, {"tool_calls": None}, {"tool_calls": []}])}


def random_request(rng):
    """Half of them are what every template should take, half are strange."""
    strange = rng.random() < 0.5
    messages = [{"role": rng.choice(["system", "system", "system", "developer"][:3 + strange]), "content": random_content(rng)}] if rng.random() < 0.5 else []
    for number in range(rng.randint(1, 4)):
        messages += random_turn(rng, number, strange)
    if rng.random() < 0.5:
        messages = messages[:1 + max(place for place, message in enumerate(messages) if message["role"] in ("user", "tool"))]
    if strange and rng.random() < 0.2:  # a role that no template knows, one twice, or nothing but a role
        place = rng.randrange(len(messages))
        message = messages[place]
        messages[place:place + 1] = rng.choice([[{**message, "role": "robot"}], [message, message], [{"role": message["role"]}]])
    tools = rng.choice([{}, {"tools": []}, {"tools": TOOLS[:1]}, {"tools": TOOLS[1::-1]}, {"tools": TOOLS[:3]}, {"tools": TOOLS}][:4 + 2 * strange])
    return {"messages": messages, **tools, "add_generation_prompt": rng.random() < 0.5, "chat_template_kwargs": rng.choice(VARIABLES)}


def with_joined_parts(messages, roles):
    parts_of = lambda message: message.get("content") if message["role"] in roles else None
    return [{**each, "content": "\n".join(part["text"] for part in parts_of(each))} if isinstance(parts_of(each), list) else each for each in messages]


def reference(tokenizer, request):
    """Every prompt that is right: one for each choice of roles whose parts are joined, less those with which transformers raise."""
    with_parts = sorted({each["role"] for each in request["messages"] if isinstance(each.get("content"), list)})
    for count in range(len(with_parts) + 1):
        for roles in itertools.combinations(with_parts, count):
            try:
                yield tokenizer.apply_chat_template(with_joined_parts(request["messages"], roles), tools=request.get("tools"), tokenize=False,
                                                    add_generation_prompt=request["add_generation_prompt"], **request["chat_template_kwargs"])
            except Exception:
                pass


def prompts(program, folder, requests):
    """Of each request; None where maniple refuses it, which ends a run: the next one goes on behind it."""
    results = []
    while len(results) < len(requests):
        lines = "".join(json.dumps(request) + "\n" for request in requests[len(results):])
        done = subprocess.run([program, "tokenize", "--chat", "--model", folder], input=lines, capture_output=True, text=True)
        if done.returncode not in (0, 65):
            raise RuntimeError(f"exit code {done.returncode}: {done.stderr}")
        results += [json.loads(line)["prompt"] for line in done.stdout.split("\n") if line]
        if done.returncode != 0:
            results.append(None)
    return results


def around_difference(ours, theirs):
    """Two texts from a little before the first place where they differ."""
    place = next((i for i, (one, other) in enumerate(zip(ours or "", theirs or "")) if one != other), min(len(ours or ""), len(theirs or "")))
    return [text and text[max(0, place - 60):place + 60] for text in (ours, theirs)]


def compare(arguments, template):
    """How many requests transformers refuse, and what differs."""
    refused, different = 0, []
    rng = random.Random(arguments.seed)
    requests = [random_request(rng) for _ in range(arguments.conversations)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tokenizer.json").write_bytes(arguments.tokenizer.read_bytes())
        (folder / "tokenizer_config.json").write_text(json.dumps(TOKENS))
        (folder / "chat_template.jinja").write_bytes(template.read_bytes())
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(arguments.tokenizer), chat_template=template.read_text(), **TOKENS)
        for request, ours in zip(requests, prompts(arguments.program, folder, requests), strict=True):
            right = list(reference(tokenizer, request))
            refused += not right
            if ours not in (right or [None]):
                ours, theirs = around_difference(ours, right[0] if right else None)
                different.append(f"ours {ours!r}, theirs {theirs!r}: {json.dumps(request)}")
    return refused, different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--templates", type=Path, required=True)
    parser.add_argument("--program", default="build/release/maniple")
    parser.add_argument("--tokenizer", type=Path, default=Path(__file__).parents[1] / "data/tokenizers/mistral-v3-style/tokenizer.json")
    parser.add_argument("--conversations", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    templates, found = sorted(arguments.templates.glob("*.jinja")), 0
    for template in templates:
        refused, different = compare(arguments, template)
        found += len(different)
        print("BAD" if different else "ok ", f"{template.name}: {len(different)} of {arguments.conversations} conversations differ; transformers refuse {refused}", flush=True)
        for each in different:
            print(f"  {each}", flush=True)
    print(f"{found} differences in {len(templates)} templates, --seed {arguments.seed}")
    sys.exit(found > 0 or not templates)


if __name__ == "__main__":
    main()
