#!/usr/bin/env python3
"""What PyTorch and transformers reach on this GPU on the work that kernel_bench and run.sh time: one JSON line a case.

usage: peers.py MODEL_FOLDER ENGINE_JSONL [decode] [prefill] [single] [engine]     (all where none is named)
MODEL_FOLDER: a config.json of Qwen3's kind; weights are random. ENGINE_JSONL: the requests of run.sh's stage `engine`.
PEERS_DEVICE=cpu tries the script itself, with small sizes. Exit code 77: torch or transformers here have other interfaces. A part begins no
case after PEERS_SECONDS (100), since flex_attention is compiled for each."""

import json
import os
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, StaticCache
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

DEVICE = os.environ.get("PEERS_DEVICE", "cuda")
ON_GPU = DEVICE == "cuda"
SCALE = 1 if ON_GPU else 64  # sizes are divided by it
END = time.monotonic() + float(os.environ.get("PEERS_SECONDS", 100))
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


def attention_paths(causal):
    """torch's ways to attend with grouped queries, by name: functions of queries, keys, values."""

    def with_backend(backend):
        def attend(q, k, v):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        return attend

    paths = {name: with_backend(getattr(SDPBackend, backend))
             for name, backend in {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}.items()}
    torch._dynamo.config.recompile_limit = 64
    compiled = torch.compile(flex_attention, dynamic=False)
    masks = {}

    def flex(q, k, v):
        length = q.shape[2]
        if causal and length not in masks:
            masks[length] = create_block_mask(lambda b, h, query, key: query >= key, None, None, length, length, device=DEVICE)
        return compiled(q, k, v, block_mask=masks.get(length), enable_gqa=True)

    return {**paths, "flex": flex}


def time_paths(kind, operands, rates, **case):
    """What each path takes for the operands (queries, keys, values), in turn; one that cannot says why."""
    for name, attend in attention_paths(causal=kind == "prefill").items():
        if time.monotonic() > END:
            say(peer=f"{name} {kind}", **case, skipped="time")
            continue
        try:
            us = microseconds([lambda each=each: attend(*each) for each in operands])
            say(peer=f"{name} {kind}", **case, us=round(us, 2), **rates(us))
        except Exception as error:  # each path refuses in its own way
            say(peer=f"{name} {kind}", **case, refused=str(error).splitlines()[0][:100])


# Attention is over contiguous keys and values: torch has no paged attention of its own.
heads, kv_heads, dim = 16, 8, 128


def random(*shape):
    return torch.randn(shape, dtype=torch.bfloat16, device=DEVICE)


@torch.inference_mode()
def decode():
    for batch in (1, 8, 32, 128, 256):
        for context in (256, 1024, 4096, 16384):
            kv_bytes = 2 * 2 * batch * kv_heads * context * dim
            if kv_bytes > (18 << 30) // SCALE:
                continue
            query = random(batch, heads, 1, dim)
            sets = [(query, random(batch, kv_heads, context, dim), random(batch, kv_heads, context, dim))
                    for _ in range(max(2, min(64, COLD_BYTES // kv_bytes + 1)))]
            time_paths("decode", sets, lambda us: {"gb_s": round(kv_bytes / us / 1e3)}, sequences=batch, context=context, group=2)


@torch.inference_mode()
def prefill():
    for length in (512, 1024, 4096, 16384):
        length //= SCALE
        batch = 16384 // SCALE // length
        operands = [(random(batch, heads, length, dim), random(batch, kv_heads, length, dim), random(batch, kv_heads, length, dim))]
        flops = 4.0 * batch * length * (length + 1) / 2 * heads * dim
        time_paths("prefill", operands * 4, lambda us: {"tflop_s": round(flops / us / 1e6, 1)}, sequences=batch, longest=length)


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
        if time.monotonic() > END:
            return say(peer="compiled, static cache", sequences=batch, skipped="time")
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


def batching_settings():
    if not ON_GPU:
        return {}
    try:
        from transformers import ContinuousBatchingConfig
    except ImportError:  # it came after generate_batch
        return {}
    return {"continuous_batching_config": ContinuousBatchingConfig(use_cuda_graph=True, use_async_batching=True)}


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
    results = model.generate_batch(inputs=[each["tokens"] for each in work], generation_config=settings, **batching_settings())
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
    code = 0
    for name, part in {"decode": decode, "prefill": prefill, "single": lambda: single(folder), "engine": lambda: engine(folder, requests)}.items():
        try:
            if not chosen or name in chosen:
                part()
        except (AttributeError, ImportError, NotImplementedError, TypeError, ValueError) as error:  # the interfaces of transformers change
            say(peer=name, skipped=f"{type(error).__name__}: {error}".splitlines()[0][:200])
            code = 77
    sys.exit(code)


if __name__ == "__main__":
    main()
