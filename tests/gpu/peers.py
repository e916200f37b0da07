#!/usr/bin/env python3
"""What PyTorch and transformers reach on this GPU on the work that kernel_bench and run.sh time: one JSON line a case.

usage: peers.py MODEL_FOLDER ENGINE_JSONL [attention] [single] [engine]     (all where none is named)
MODEL_FOLDER: a config.json of Qwen3's kind; weights are random. ENGINE_JSONL: the requests of run.sh's stage `engine`.
PEERS_DEVICE=cpu tries the script itself, with small sizes."""

import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, StaticCache

DEVICE = os.environ.get("PEERS_DEVICE", "cuda")
ON_GPU = DEVICE == "cuda"
SCALE = 1 if ON_GPU else 64  # sizes are divided by it
COLD_BYTES = (256 << 20) // SCALE  # what is read in turn does not fit the cache


def say(**case):
    print(json.dumps(case), flush=True)


def wait():
    if ON_GPU:
        torch.cuda.synchronize()


def microseconds(calls, rounds=15):
    """The median time of one of the calls, which are replayed as one graph where there is a GPU."""
    for call in calls:
        call()
    wait()
    run = lambda: [call() for call in calls]
    if ON_GPU:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        run = graph.replay
    times = []
    for _ in range(rounds):
        wait()
        start = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times) / len(calls) * 1e6


def attention():
    """Of contiguous keys and values: torch has no paged attention of its own."""
    heads, kv_heads, dim = 16, 8, 128
    random = lambda *shape: torch.randn(shape, dtype=torch.bfloat16, device=DEVICE)
    attend = lambda q, k, v, causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    for batch in (1, 8, 32, 128, 256):
        for context in (256, 1024, 4096, 16384):
            kv_bytes = 2 * 2 * batch * kv_heads * context * dim
            if kv_bytes > (16 << 30) // SCALE:
                continue
            sets = [(random(batch, kv_heads, context, dim), random(batch, kv_heads, context, dim))
                    for _ in range(max(2, min(64, COLD_BYTES // kv_bytes + 1)))]
            query = random(batch, heads, 1, dim)
            us = microseconds([lambda k=k, v=v: attend(query, k, v, False) for k, v in sets])
            say(peer="sdpa decode", sequences=batch, context=context, group=2, us=round(us, 2), gb_s=round(kv_bytes / us / 1e3))
    for length in (512, 1024, 4096, 16384):
        length //= SCALE
        batch = 16384 // SCALE // length
        q, k, v = random(batch, heads, length, dim), random(batch, kv_heads, length, dim), random(batch, kv_heads, length, dim)
        us = microseconds([lambda: attend(q, k, v, True)] * 4)
        flops = 4.0 * batch * length * (length + 1) / 2 * heads * dim
        say(peer="sdpa prefill", sequences=batch, longest=length, us=round(us, 2), tflop_s=round(flops / us / 1e6, 1))


def model_of(folder, attention_kind):
    config = AutoConfig.from_pretrained(folder)
    if not ON_GPU:
        config.num_hidden_layers, config.vocab_size = 2, 4096
    config._attn_implementation = attention_kind
    torch.manual_seed(0)
    with torch.device(DEVICE):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


@torch.inference_mode()
def single(folder):
    """Decode steps of a compiled model over a static cache."""
    model = model_of(folder, "sdpa")
    step = torch.compile(model, mode="reduce-overhead", fullgraph=True) if ON_GPU else model
    prompt, new = 128, 512 // SCALE
    for batch in (1, 8, 32):
        cache = StaticCache(config=model.config, max_cache_len=prompt + new + 8)
        tokens = torch.randint(1000, (batch, prompt), device=DEVICE)
        model(tokens, past_key_values=cache, cache_position=torch.arange(prompt, device=DEVICE))
        times, token = [], tokens[:, -1:].clone()
        for position in range(prompt, prompt + new):
            start = time.perf_counter()
            where = torch.tensor([position], device=DEVICE)
            token = step(token.clone(), past_key_values=cache, cache_position=where).logits[:, -1].argmax(-1, keepdim=True)
            wait()
            times.append(time.perf_counter() - start)
        ms = statistics.median(times) * 1e3
        say(peer="compiled, static cache", sequences=batch, ms_a_token=round(ms, 3), tok_s=round(batch / ms * 1e3))


def engine(folder, requests):
    """Continuous batching of transformers; without flash-attn its attention is a paged sdpa."""
    model = model_of(folder, "sdpa")
    with open(requests) as lines:
        work = [json.loads(line) for line in lines]
    if not ON_GPU:
        work = [{"tokens": [t % 4096 for t in each["tokens"]][:20], "max_tokens": 5} for each in work[:4]]
    longest = max(each["max_tokens"] for each in work)  # one length for all: tokens beyond a request's own are not counted
    settings = GenerationConfig(max_new_tokens=longest, do_sample=True, temperature=0.6, eos_token_id=-1, pad_token_id=0)
    start = time.perf_counter()
    results = model.generate_batch(inputs=[each["tokens"] for each in work], generation_config=settings)
    wait()
    seconds = time.perf_counter() - start
    made, wanted = sum(len(each.generated_tokens) for each in results.values()), sum(each["max_tokens"] for each in work)
    if made < wanted:
        sys.exit(f"generate_batch made {made} tokens of {wanted}")
    say(peer="transformers generate_batch", requests=len(work), seconds=round(seconds, 2), tok_s=round(made / seconds), tok_s_of_wanted=round(wanted / seconds))


def main():
    folder, requests, *chosen = sys.argv[1:]
    versions = {"peer": "versions", "torch": torch.__version__, "cuda": torch.version.cuda}
    say(**versions, device=torch.cuda.get_device_name() if ON_GPU else "cpu")
    for name, part in {"attention": attention, "single": lambda: single(folder), "engine": lambda: engine(folder, requests)}.items():
        if not chosen or name in chosen:
            part()


if __name__ == "__main__":
    main()
