#!/usr/bin/env python3
"""What transformers need for the cases of engine_bench.sh on these processors: random weights of Qwen3-0.6B's shape in bf16, a static cache, compiled
by torch and not. One line a case. usage: transformers_bench.py [THREADS]     (needs Python with torch and transformers, and a C++ compiler)"""

import os
import statistics
import sys
import time

import torch
from transformers import AutoModelForCausalLM, Qwen3Config, StaticCache

PROMPT, STEPS = 16, 16


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


def main():
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else os.cpu_count())
    config = Qwen3Config(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
                         vocab_size=151936, tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    for how, step in {"as it is": model, "compiled": torch.compile(model)}.items():
        for name, case in {"decode, batch 1": lambda: decode(model, step, 1), "decode, batch 32": lambda: decode(model, step, 32),
                           "prefill, 512 tokens": lambda: prefill(model, step, 512)}.items():
            print(f"| {name} | transformers, {how} | {1e3 * case():.1f} ms |", flush=True)


if __name__ == "__main__":
    main()
