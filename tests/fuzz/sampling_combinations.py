#!/usr/bin/env python3
"""Random combinations of all sampling fields: the same bytes on every grid, batch and restart.

usage: sampling_combinations.py [--program PATH] [--mpirun COMMAND] [--model DIR] [--lines 10000] [--seed N] [--grids 'RANKS OPTIONS;...']

Every grid computes the same lines with other sizes of batches, blocks and steps; one run is cut in the middle and goes on. The first grid is the reference."""

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
GRIDS = ("1 --max-num-seqs 1;1 --max-num-seqs 64 --block-size 16;2 --tp 2 --max-num-batched-tokens 48 --max-num-seqs 16;4 --tp 4;"
         "4 --tp 2 --pp 2 --max-num-seqs 8;2 --no-prefix-cache;8 --tp 8 --cp 2;4 --tp 2 --kv-memory 3M --block-size 16 --max-num-seqs 32")


def random_line(number, rng, vocabulary):
    def some(count):
        return [rng.randrange(vocabulary) for _ in range(rng.randint(1, count))]

    words = ["the", " the", "and", "I", "thou", "ing", "\n", "e", "king", " of"]
    fields = {
        "temperature": lambda: rng.choice([0, 0.3, 1, 1.7]), "top_k": lambda: rng.choice([-1, 0, 1, 5, 64, 65, 200]), "top_p": lambda: rng.choice([1e-6, 0.3, 0.9, 1]),
        "min_p": lambda: rng.choice([0, 0.05, 0.5, 1]), "seed": lambda: rng.getrandbits(63), "min_tokens": lambda: rng.randint(0, 3),
        "ignore_eos": lambda: rng.random() < 0.5, "logprobs": lambda: rng.choice([0, 1, 5, 30]), "prompt_logprobs": lambda: rng.choice([0, 1, 70]),
        "repetition_penalty": lambda: rng.choice([0.5, 1, 1.2, 8]), "frequency_penalty": lambda: rng.uniform(-2, 2), "presence_penalty": lambda: rng.uniform(-2, 2),
        "allowed_token_ids": lambda: sorted(set(some(40))), "logit_bias": lambda: {str(token): rng.uniform(-100, 100) for token in set(some(20))},
        "bad_words": lambda: rng.sample(words, rng.randint(1, 3)), "stop": lambda: rng.sample(words, rng.randint(1, 2)), "stop_token_ids": lambda: some(3),
        "n": lambda: rng.choice([1, 2, 3, 7]), "continuation": lambda: some(4),
    }
    chosen = rng.sample(sorted(fields), rng.choice([1, 1, 2, 3, 5, 8]))
    stem = [7 + i % 50 for i in range(rng.choice([0, 20, 64, 90]))]
    return {"id": number, "tokens": stem + some(rng.choice([1, 4, 30])), "max_tokens": rng.randint(3, 12)} | {name: fields[name]() for name in chosen}


def command_of(given, grid, run):
    ranks, *options = grid.split()
    launcher = [*shlex.split(given.mpirun), "-n", ranks] if ranks != "1" else []
    return [*launcher, given.program, "generate", "--model", str(given.model), "--dtype", "bf16", "--threads", "1", "--seed", "1", "--in", str(run.parent / "in.jsonl"), "--run-dir", str(run), *options]


def results_of(given, grid, run, cut):
    command = command_of(given, grid, run)
    if cut:
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(cut)
        started.send_signal(signal.SIGTERM)
        started.wait()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1) or not (run / "results.jsonl").exists():
        raise SystemExit(f"{shlex.join(command)}: exit code {done.returncode}: {done.stderr[-2000:]}")
    return [line for name in ("results.jsonl", "errors.jsonl") if (run / name).exists() for line in (run / name).read_text().splitlines()]



def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--program", default="build/release/maniple")
    options.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none --mca btl self,vader --mca mpi_yield_when_idle 1")
    options.add_argument("--model", type=Path, default=HERE / "../data/models/shakespeare")
    options.add_argument("--lines", type=int, default=10000)
    options.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options.add_argument("--grids", default=GRIDS)
    given = options.parse_args()
    rng = random.Random(given.seed)
    vocabulary = json.loads((given.model / "config.json").read_text())["vocab_size"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "in.jsonl").write_text("".join(json.dumps(random_line(number, rng, vocabulary)) + "\n" for number in range(given.lines)))
        reference = None
        for number, grid in enumerate(given.grids.split(";")):
            began = time.monotonic()
            lines = sorted(results_of(given, grid, Path(folder) / str(number), 3 if number == 2 else 0))
            if len(lines) != given.lines:
                sys.exit(f"{len(lines)} of {given.lines} lines have a result: {grid}")
            reference = reference or lines
            different = [pair for pair in zip(reference, lines) if pair[0] != pair[1]]
            print(f"{'ok ' if lines == reference else 'BAD'} {len(lines)} lines, {len(different)} differ, {time.monotonic() - began:.0f} s; --seed {given.seed}: {grid}", flush=True)
            if lines != reference:
                sys.exit("\n".join(different[0]) if different else "another number of lines")


if __name__ == "__main__":
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "HWLOC_COMPONENTS": "-gl"}
    main()
