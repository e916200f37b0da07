#!/usr/bin/env python3
"""Step time of two programs, or of one with other options, in turns: a decode step of 1 and of 32 sequences, and prefill. Prints the median of the
ratios B / A with its 95 % interval (order statistics), of the time in steps and of the CPU time of the whole process.

usage: step_pairs.py [--pairs 20] [--cases decode1,decode32,prefill] [--a OPTIONS] [--b OPTIONS] [--model DIR] PROGRAM_A [PROGRAM_B]
  step_pairs.py old/maniple build/release/maniple --b '--record off'
  step_pairs.py build/release/maniple --a '--record off'"""
import argparse
import json
import math
import os
import random
import resource
import statistics
import subprocess
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--pairs", type=int, default=20)
options.add_argument("--cases", default="decode1,decode32,prefill")
options.add_argument("--a", default="")
options.add_argument("--b", default="")
options.add_argument("--model", default=f"{here}/../data/models/shakespeare")
options.add_argument("program_a")
options.add_argument("program_b", nargs="?")
given = options.parse_args()

draw = random.Random(1)


def requests(count, prompt, output):
    return [{"tokens": [draw.randrange(3, 250) for _ in range(prompt)], "max_tokens": output, "ignore_eos": True} for _ in range(count)]


cases = {"decode1": requests(1, 8, 900), "decode32": requests(32, 8, 220), "prefill": requests(40, 900, 1)}


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(folder, program, words, number):
    run_dir = f"{folder}/{number}"
    before = cpu_seconds()
    command = [program, "generate", "--model", given.model, "--threads", "1", "--dtype", "bf16", "--seed", "1", "--in", f"{folder}/in.jsonl", "--run-dir", run_dir]
    subprocess.run(command + words.split(), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = json.load(open(f"{run_dir}/jobs/1/record.json"))["rank_seconds"][0]
    return seconds["prefill"] + seconds["decode"], cpu_seconds() - before


def interval(values):
    ordered, n, skip = sorted(values), len(values), 0
    while 2 * sum(math.comb(n, i) for i in range(skip + 1)) / 2**n <= 0.05:
        skip += 1
    return "{:.3f} [{}]".format(statistics.median(ordered),
                                "{:.3f}, {:.3f}".format(ordered[skip - 1], ordered[n - skip]) if skip else "-, -")


print("| case | s | steps, B / A [95 % CI] | CPU time |\n|---|--:|--:|--:|")
for case in given.cases.split(","):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/in.jsonl", "w") as lines:
            lines.writelines(json.dumps(request) + "\n" for request in cases[case])
        sides = [(given.program_a, given.a), (given.program_b or given.program_a, given.b)]
        for side in (0, 1):
            run(folder, *sides[side], f"warm-up-{side}")
        seconds, ratios, cpu_ratios = [], [], []
        for pair in range(given.pairs):
            of = {side: run(folder, *sides[side], f"{pair}-{side}") for side in ((0, 1) if pair % 2 == 0 else (1, 0))}
            seconds.append(of[0][0])
            ratios.append(of[1][0] / of[0][0])
            cpu_ratios.append(of[1][1] / of[0][1])
        print(f"| {case} | {statistics.median(seconds):.2f} | {interval(ratios)} | {interval(cpu_ratios)} |", flush=True)
