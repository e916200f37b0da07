#!/usr/bin/env python3
"""Damages a packed model at random places, by flips, cuts and swaps, and generates from it: it is refused with one message and exit code 65, or gives the
text of the whole model (where bytes that nobody reads have changed). usage: damaged_models.py PROGRAM DIR [--rounds 1000] [--seed 1]"""
import argparse, pathlib, random, subprocess, sys, tempfile

parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("model")
parser.add_argument("--rounds", type=int, default=1000)
parser.add_argument("--seed", type=int, default=1)
options = parser.parse_args()
chance = random.Random(options.seed)


def generate(model):
    command = [options.program, "generate", "--model", model, "--prompt", "x", "--max-tokens", "2", "--seed", "1", "--threads", "1"]
    return subprocess.run(command, capture_output=True, timeout=60)


with tempfile.TemporaryDirectory() as folder:
    whole, damaged = folder + "/whole.h5", folder + "/damaged.h5"
    subprocess.run([options.program, "convert", options.model, whole], check=True, capture_output=True)
    expected, content = generate(whole).stdout, pathlib.Path(whole).read_bytes()
    counts = {}
    for round in range(options.rounds):
        data = bytearray(content)
        kind = chance.choice(["flip", "begin", "cut", "swap", "zeros"])
        at = chance.randrange(64 if kind == "begin" else len(data))
        if kind in ("flip", "begin"):
            data[at] ^= 1 << chance.randrange(8)
        elif kind == "cut":
            del data[at:]
        else:
            size = chance.choice([1, 8, 512, 4096, 65536])
            other = chance.randrange(len(data))
            part = data[at:at + size]
            data[at:at + size] = bytes(len(part)) if kind == "zeros" else (data[other:other + len(part)] + bytes(len(part)))[:len(part)]
        pathlib.Path(damaged).write_bytes(data)
        result = generate(damaged)
        refused = result.returncode == 65 and result.stderr.count(b"maniple: error:") == 1
        same = result.returncode == 0 and result.stdout == expected
        counts[(kind, result.returncode)] = counts.get((kind, result.returncode), 0) + 1
        if not (refused or same):
            sys.exit(f"round {round}: {kind} at {at}: exit code {result.returncode}\n{result.stderr.decode(errors='replace')}")
    print(counts)
