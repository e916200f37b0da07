#!/usr/bin/env python3
"""How far this run is from what its own ceilings allow, and from torch: one line a gate, from the logs that run.sh's stages left.

usage: gates.py RESULTS_FOLDER MODEL_FOLDER      prints "STAGE | RESULT"; a gate without its logs is not printed"""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

BENCH_KV_BYTES = 2 * 2 * 8 * 128  # a token and layer in kernel_bench


@dataclass
class Ceilings:
    bytes_a_second: float
    flops_a_second: float


class Shape:
    """What a model of Qwen3's kind costs, in bf16."""

    def __init__(self, config):
        hidden, self.layers, self.query = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"] * config["head_dim"]
        kv = config["num_key_value_heads"] * config["head_dim"]
        self.layer_parameters = self.layers * (hidden * (2 * self.query + 2 * kv) + 3 * hidden * config["intermediate_size"])
        self.head_parameters = hidden * config["vocab_size"]
        self.weight_bytes = 2 * (self.layer_parameters + self.head_parameters)
        self.kv_bytes = 2 * 2 * self.layers * kv  # a token


def roofline_seconds(shape, ceilings, requests):
    """Of requests (prompt, generated tokens) that all run at once: prompts at the product ceiling; of each decode step the larger of reading the
    weights and multiplying with them, and reading every cache that it attends to."""
    read = lambda count: count / ceilings.bytes_a_second
    compute = lambda count: count / ceilings.flops_a_second
    prompts = sum(prompt for prompt, _ in requests)
    causal_pairs = sum(prompt * (prompt + 1) / 2 for prompt, _ in requests)
    prefill = compute(2 * shape.layer_parameters * prompts + 2 * shape.head_parameters * len(requests) + 4 * shape.layers * shape.query * causal_pairs)
    steps = max(generated for _, generated in requests) - 1
    live = lambda step: sum(step < generated for _, generated in requests)
    products = sum(max(read(shape.weight_bytes), compute(shape.weight_bytes * live(step))) for step in range(1, steps + 1))
    attended = sum((generated - 1) * prompt + generated * (generated - 1) / 2 for prompt, generated in requests)
    return prefill + products + read(shape.kv_bytes * attended)


def json_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")] if path.exists() else []


def tokens_a_second(results, stage):
    """The slower of the stage's runs."""
    found = [re.search(r"([0-9.]+) tok/s", log.read_text()) for log in results.glob(f"{stage}.*.log")]
    return min((float(each[1]) for each in found if each), default=None)


def verdict(met):
    return "met" if met else "MISSED"


def kernel_gates(kernels):
    decodes = [k for k in kernels if k.get("kernel") == "attention_decode" and BENCH_KV_BYTES * k["sequences"] * k["context"] >= 64e6]
    if decodes:
        worst = min(decodes, key=lambda k: k["percent_of_read"])
        yield "decode attention from 64 MB on", (f"{verdict(worst['percent_of_read'] >= 85)}: at worst {worst['percent_of_read']} % of the read ceiling "
                                                 f"({worst['sequences']} x {worst['context']}, group {worst['group']}), wanted 85 %")
    mixed = [k for k in kernels if k.get("kernel") == "attention_decode_mixed"]
    if mixed:
        worst = min(mixed, key=lambda k: k["percent_of_read"])
        yield "decode attention of mixed lengths", f"at worst {worst['percent_of_read']} % of the read ceiling (step {worst['step']})"
    for k in kernels:
        if k.get("kernel") == "blocks" and isinstance(k["observed"], int):
            yield f"blocks of {k['of']}", f"{verdict(k['observed'] >= min(k['queried'], k['waiting_queried']))}: {k['observed']} a multiprocessor seen, {k['queried']} queried"
        if k.get("kernel") == "sample_filtered" and k["rows"] in (1, 256):
            most = 60 if k["rows"] == 1 else 250
            yield f"filtered draw of {k['rows']}", f"{verdict(k['us'] <= most)}: {k['us']} us, wanted {most}"
        if k.get("kernel") == "attention_prefill" and k["longest"] == 4096:
            yield "prefill attention at 4k", f"{verdict(k['tflop_s'] >= 300)}: {k['tflop_s']} TFLOP/s, wanted 300"


def engine_gates(results, shape, ceilings):
    speed = tokens_a_second(results, "engine")
    if speed:
        requests = [(len(r["tokens"]), r["max_tokens"]) for r in json_lines(results / "engine.jsonl")]
        ceiling = sum(generated for _, generated in requests) / roofline_seconds(shape, ceilings, requests)
        yield "nano-vLLM's workload", f"{verdict(speed >= 0.6 * ceiling)}: {speed:.0f} tok/s, {100 * speed / ceiling:.0f} % of {ceiling:.0f}, wanted 60 %"
    speed = tokens_a_second(results, "single")
    if speed:
        milliseconds, floor = 1e3 / speed, 1e3 * shape.weight_bytes / ceilings.bytes_a_second
        yield "single stream", f"{verdict(milliseconds <= 2.5 * floor)}: {milliseconds:.3f} ms a token, {milliseconds / floor:.2f} x {floor:.3f} ms to read the weights, wanted 2.5 x"


def peer_gates(results, kernels):
    """Ahead of torch's best path on each piece of the same work."""
    ours, theirs = {}, {}
    for k in kernels:
        if k.get("kernel") == "attention_decode" and k["group"] == 2:
            ours["decode", k["sequences"], k["context"]] = k["us"]
        if k.get("kernel") == "attention_prefill" and k["case"] == "prompts":
            ours["prefill", k["sequences"], k["longest"]] = k["us"]
    for p in (each for log in sorted(results.glob("peers.*.log")) for each in json_lines(log)):
        kind = p["peer"].split()[-1]
        if kind in ("decode", "prefill") and "us" in p:
            key = kind, p["sequences"], p.get("context", p.get("longest"))
            theirs[key] = min(p["us"], theirs.get(key, p["us"]))
    for kind in ("decode", "prefill"):
        ratios = {key: theirs[key] / ours[key] for key in ours.keys() & theirs.keys() if key[0] == kind}
        if ratios:
            key = min(ratios, key=ratios.get)
            yield f"{kind} attention beside torch", f"{verdict(ratios[key] >= 1)}: at worst {ratios[key]:.2f} x its speed ({key[1]} x {key[2]}), wanted 1 x"
    for stage, part, name in (("single", "single", "compiled, static cache"), ("engine", "engine", "transformers generate_batch")):
        speed = tokens_a_second(results, stage)
        for p in json_lines(results / f"peers.{part}.log"):
            if speed and p["peer"] == name and "tok_s" in p and p.get("sequences", 1) == 1:
                best = p.get("tok_s_of_wanted", p["tok_s"])
                yield f"{stage} beside torch", f"{verdict(speed >= best)}: {speed / best:.2f} x the {best} tok/s of {name}, wanted 1 x"


def gates(results, config):
    kernels = [each for log in sorted(results.glob("kernels*.log")) for each in json_lines(log)]
    yield from kernel_gates(kernels)
    named = {k["kernel"]: k for k in kernels if "kernel" in k}
    if "read_all" in named and "product" in named:
        ceilings = Ceilings(named["read_all"]["gb_s"] * 1e9, named["product"]["tflop_s"] * 1e12)
        yield "ceilings", f"reads {named['read_all']['gb_s']} GB/s, products {named['product']['tflop_s']} TFLOP/s"
        yield from engine_gates(results, Shape(config), ceilings)
    yield from peer_gates(results, kernels)


def main():
    results, model = map(Path, sys.argv[1:])
    for gate, result in gates(results, json.loads((model / "config.json").read_text())):
        print(f"{gate} | {result}")


if __name__ == "__main__":
    main()
