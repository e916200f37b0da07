#!/usr/bin/env python3
"""What the axes of the grid gain, by `maniple bench throughput` with random weights, both sides of a case in turns. Prints the median of the ratios A / B
(above 1: B is faster) and the smallest and largest one.

usage: axes_bench.py [--pairs 5] [--cases two_ranks,stages_prefill,...] [--before PROGRAM] PROGRAM
  --before: an older program for the cases that compare versions; without it they are left out"""
import argparse
import json
import statistics
import subprocess
import tempfile

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--pairs", type=int, default=5)
options.add_argument("--cases")
options.add_argument("--before")
options.add_argument("program")
given = options.parse_args()

dense = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
         "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
         "tie_word_embeddings": True, "max_position_embeddings": 16384, "attention_bias": False, "hidden_act": "silu", "torch_dtype": "bfloat16"}
one_kv_head = dense | {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 1, "vocab_size": 4096}

mpirun = "mpirun --oversubscribe --allow-run-as-root --bind-to none --mca btl self,vader --mca mpi_yield_when_idle 1 -n".split()
stages = "--lengths fixed:256/1 --num-prompts 64 --pp 2 --pp-layers 14,14"
decoding = "--lengths fixed:8/64 --num-prompts 128 --pp 2"
long = "--lengths fixed:8192/33 --num-prompts 8 --tp 4 --max-model-len 8320"
# name: config, ranks and options of A and of B, metric, work of B in units of A's
cases = {
    "two_ranks": (dense, (1, "--lengths fixed:256/1 --num-prompts 16"), (2, "--lengths fixed:256/1 --num-prompts 32"), "elapsed_time", 2),
    "stages_prefill": (dense, (2, stages + " --pp-steps 1"), (2, stages), "elapsed_time", 1),
    "stages_decode": (dense, (2, decoding + " --pp-steps 1"), (2, decoding), "elapsed_time", 1),
    "rows_before": (dense, (2, "--lengths fixed:2048/1 --num-prompts 4 --tp 2"), (2, "--lengths fixed:2048/1 --num-prompts 4 --tp 2"), "elapsed_time", 1),
    "context": (one_kv_head, (4, long), (4, long + " --cp 4"), "median_tpot_ms", 1),
}


def run(folder, program, ranks, words, metric):
    command = mpirun + [str(ranks), program, "bench", "throughput", "--model", folder, "--load", "random", "--threads", "1", "--warmup", "0", "--repeats", "1",
                        "--json", f"{folder}/out.json", "--overwrite", "--quiet"]
    subprocess.run(command + words.split(), check=True, stdout=subprocess.DEVNULL)
    with open(f"{folder}/out.json") as text:
        return json.load(text)[metric]


print("| case | A | B | A / B, median (smallest, largest) |\n|---|--:|--:|--:|")
for name in given.cases.split(",") if given.cases else cases:
    config, a, b, metric, work = cases[name]
    if name.endswith("_before") and not given.before:
        continue
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/config.json", "w") as text:
            json.dump(config, text)
        sides = [(given.before if name.endswith("_before") else given.program, *a), (given.program, *b)]
        values = [[], []]
        for pair in range(given.pairs):
            for side in (0, 1) if pair % 2 == 0 else (1, 0):
                values[side].append(run(folder, *sides[side], metric))
        ratios = [work * first / second for first, second in zip(*values)]
        print(f"| {name} | {statistics.median(values[0]):.2f} | {statistics.median(values[1]):.2f} | "
              f"{statistics.median(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f}) |", flush=True)
