#!/usr/bin/env python3
"""nano-vLLM's bench.py: 256 prompts of 100 to 1024 tokens, as many to generate, from Python's seed 0 (142827 and 133966 in all). Prints JSON lines."""

import json
from random import randint, seed


def nano_vllm_requests():
    seed(0)
    prompts = [[randint(0, 10000) for _ in range(randint(100, 1024))] for _ in range(256)]
    return [{"id": i, "tokens": prompt, "max_tokens": randint(100, 1024), "temperature": 0.6, "ignore_eos": True} for i, prompt in enumerate(prompts)]


if __name__ == "__main__":
    for request in nano_vllm_requests():
        print(json.dumps(request))
