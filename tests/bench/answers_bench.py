#!/usr/bin/env python3
"""What several answers, scores and penalties cost: ratios of times in steps, of pairs of runs in turns. Prints medians with their bars.

usage: answers_bench.py [--pairs 5] [--threads N] [--layers 8] [--cases NAME,...] PROGRAM [ANOTHER_PROGRAM]      (Qwen3-0.6B's shape with random weights)

  fork          n = 8 of a prompt of 4,096 tokens, prefix cache off, to the first token of all; to n = 1
  score         prompt_logprobs of 1,024 tokens; to the prefill of them, times what the head adds by its share of the products
  continuation  one token after a prompt of 700; to a prefill of 701 that generates one
  shared        four such lines with one prompt; to one
  penalties     decode of 32 sequences with 4,096 tokens of history and all three penalties; to none
  program       decode of 32 sequences by PROGRAM; to ANOTHER_PROGRAM"""

import argparse
import json
import random
import statistics
import subprocess
import tempfile
from pathlib import Path

CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8,
          "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": True,
          "attention_bias": False, "hidden_act": "silu", "torch_dtype": "bfloat16", "eos_token_id": 151645}

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--pairs", type=int, default=5)
options.add_argument("--threads", default="1")
options.add_argument("--layers", type=int, default=8)
options.add_argument("--cases", default="fork,score,continuation,shared,penalties")
options.add_argument("program")
options.add_argument("other", nargs="?")
given = options.parse_args()
draw = random.Random(1)


def ids(count):
    return [draw.randrange(3, 151000) for _ in range(count)]


def line(tokens, **fields):
    return {"tokens": tokens, "temperature": 0, "ignore_eos": True} | fields


def decode(count, prompt, output, **fields):
    return [line(ids(prompt), max_tokens=output, **fields) for _ in range(count)]


def share_of_head():
    hidden, inner, heads, kv = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["num_attention_heads"] * 128, CONFIG["num_key_value_heads"] * 128
    layer = hidden * (heads + 2 * kv) + heads * hidden + 3 * hidden * inner
    return 1 + CONFIG["vocab_size"] * hidden / (given.layers * layer)


long, middle, prompt = ids(4096), ids(1024), ids(700)
penalised = {"repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": 0.5}
# Lines, lines of the other side, the bar, what the other side is to be multiplied with, options.
CASES = {
    "fork": ([line(long, max_tokens=1, n=8, temperature=1)], [line(long, max_tokens=1, temperature=1)], 1.1, 1, "--no-prefix-cache"),
    "score": ([line(middle, max_tokens=0, prompt_logprobs=0)], [line(middle, max_tokens=1)], 1.1, share_of_head(), ""),
    "continuation": ([line(prompt, continuation=[5])], [line(prompt + [5], max_tokens=1)], 1.03, 1, ""),
    "shared": ([line(prompt, continuation=[token]) for token in (5, 6, 7, 8)], [line(prompt, continuation=[5])], 1.2, 1, ""),
    "penalties": ([line(long, max_tokens=65, n=32, temperature=1, **penalised)], [line(long, max_tokens=65, n=32, temperature=1)], 1.03, 1, ""),
    "program": (decode(32, 8, 200), None, None, 1, ""),
}


def seconds(program, model, lines, words, part):
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.jsonl"
        source.write_text("".join(json.dumps(request) + "\n" for request in lines))
        command = [program, "generate", "--model", model, "--load", "random", "--threads", given.threads, "--max-model-len", "8192", "--kv-memory", "8G", "--in", source,
                   "--run-dir", f"{folder}/run", *words.split()]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times = json.loads((Path(folder) / "run/jobs/1/record.json").read_text())["rank_seconds"][0]
        return times["decode"] if part == "decode" else times["prefill"] + times["decode"]


print("| case | seconds | ratio | bar |\n|---|--:|--:|--:|")
with tempfile.TemporaryDirectory() as model:
    (Path(model) / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": given.layers}))
    for case in given.cases.split(","):
        lines, other_lines, bar, factor, words = CASES[case]
        part = "decode" if case in ("penalties", "program") else "all"
        sides = [(given.program, lines), (given.program if other_lines else given.other, other_lines or lines)]
        times = []
        for pair in range(given.pairs):
            of = {side: seconds(sides[side][0], model, sides[side][1], words, part) for side in ((0, 1) if pair % 2 == 0 else (1, 0))}
            times.append((of[0], of[0] / (of[1] * factor)))
        print(f"| {case} | {statistics.median(t for t, _ in times):.2f} | {statistics.median(r for _, r in times):.3f} | {bar or ''} |", flush=True)
