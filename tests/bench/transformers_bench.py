#!/usr/bin/env python3
"""What transformers need for the cases of engine_bench.sh on these processors: random weights of Qwen3-0.6B's shape in bf16, or, with --experts, of
a model like that of experts_bench; a static cache, compiled by torch and not. One line a case. With --maniple PROGRAM decoding is measured in turns
with `maniple bench latency`, and the last column is the median of the ratios of the pairs (smallest, largest).

usage: transformers_bench.py [--experts] [--maniple PROGRAM] [--pairs 3] [--cases 'decode, batch 32;...'] [--how 'as it is;compiled;...'] [THREADS]
(needs Python with torch and transformers, and a C++ compiler)"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3MoeConfig, StaticCache

PROMPT, STEPS = 16, 16
shared = dict(hidden_size=1024, num_attention_heads=16, num_key_value_heads=8, head_dim=128, rope_parameters={"rope_type": "default", "rope_theta": 1e6})
dense = Qwen3Config(**shared, intermediate_size=3072, num_hidden_layers=28, vocab_size=151936, tie_word_embeddings=True)
experts = Qwen3MoeConfig(**shared, intermediate_size=3072, num_hidden_layers=16, vocab_size=32768, num_experts=64, num_experts_per_tok=8,
                         moe_intermediate_size=384, norm_topk_prob=True)


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@torch.inference_mode()
def decode(model, step, batch):
    """Median of a step."""
    cache = StaticCache(config=model.config, max_cache_len=PROMPT + STEPS + 4)
    tokens = model(torch.randint(1000, (batch, PROMPT)), past_key_values=cache, logits_to_keep=1).logits.argmax(-1)
    return statistics.median([seconds(lambda: step(tokens, past_key_values=cache)) for _ in range(STEPS + 3)][3:])


@torch.inference_mode()
def prefill(model, step, tokens):
    prompt = torch.randint(1000, (1, tokens))
    run = lambda: step(prompt, past_key_values=StaticCache(config=model.config, max_cache_len=tokens), logits_to_keep=1)
    return statistics.median([seconds(run) for _ in range(5)][2:])


def maniple_decode(program, config, batch, threads):
    """Median time of a token of the same batch."""
    with tempfile.TemporaryDirectory() as folder:
        fields = config.to_dict() | {"architectures": ["Qwen3MoeForCausalLM" if config is experts else "Qwen3ForCausalLM"], "rope_theta": 1e6}
        with open(f"{folder}/config.json", "w") as text:
            json.dump(fields, text)
        subprocess.run([program, "bench", "latency", "--model", folder, "--load", "random", "--threads", str(threads), "--lengths", f"fixed:{PROMPT}/{STEPS + 3}",
                        "--batch-size", str(batch), "--warmup", "1", "--repeats", "3", "--json", f"{folder}/out", "--quiet"], check=True, stdout=subprocess.DEVNULL)
        with open(f"{folder}/out") as text:
            return json.load(text)["rows"][0]["median_tpot_ms"] / 1e3


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--experts", action="store_true")
    words.add_argument("--maniple")
    words.add_argument("--pairs", type=int, default=3)
    words.add_argument("--cases")
    words.add_argument("--how")
    words.add_argument("threads", nargs="?", type=int, default=os.cpu_count())
    given = words.parse_args()
    torch.set_num_threads(given.threads)
    config = experts if given.experts else dense
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    compiled = torch.compile(model)
    # The ways in which transformers compute experts; the dense model has one.
    ways = ["eager", "grouped_mm", "batched_mm"] if given.experts else [""]
    how = {f"{name}{', ' * bool(way)}{way}": (step, way) for way in ways for name, step in (("as it is", model), ("compiled", compiled))}
    cases = {"decode, batch 1": (decode, 1), "decode, batch 32": (decode, 32), "prefill, 512 tokens": (prefill, 512)}
    for kind in given.how.split(";") if given.how else how:
        step, way = how[kind]
        if way:
            model.set_experts_implementation(way)
        for name in given.cases.split(";") if given.cases else cases:
            case, size = cases[name]
            if not given.maniple or case is prefill:
                print(f"| {name} | transformers, {kind} | {1e3 * case(model, step, size):.1f} ms |", flush=True)
                continue
            pairs = [(case(model, step, size), maniple_decode(given.maniple, config, size, given.threads)) for _ in range(given.pairs)]
            ratios = [theirs / ours for theirs, ours in pairs]
            print(f"| {name} | transformers, {kind} | {1e3 * statistics.median(p[0] for p in pairs):.1f} ms | maniple {1e3 * statistics.median(p[1] for p in pairs):.1f} ms | "
                  f"{statistics.median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f}) |", flush=True)


if __name__ == "__main__":
    main()
