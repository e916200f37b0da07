#!/usr/bin/env python3
"""Does `report --ranks` name a slow rank, and nobody else? Jobs of a tensor group of two ranks, with outputs of uneven lengths. In the
disturbed ones a rank is stopped for 20 of every 100 ms, for 15 s. Prints how often it was named, and how often another rank or a rank of an undisturbed
job was. On a machine where nothing else runs: other work is a disturbance too.

usage: slow_rank.py [--disturbed 6] [--undisturbed 20] [--requests 360] [--tokens 700] [--model DIR] [PROGRAM]"""
import argparse
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--disturbed", type=int, default=6)
options.add_argument("--undisturbed", type=int, default=20)
options.add_argument("--requests", type=int, default=360, help="a job should take 30 s or more")
options.add_argument("--tokens", type=int, default=700, help="of the longest output")
options.add_argument("--model", default=f"{here}/../data/models/shakespeare")
options.add_argument("program", nargs="?", default=f"{here}/../../build/release/maniple")
given = options.parse_args()
launcher = os.environ.get("MPIRUN", "mpirun --oversubscribe --bind-to none -n 2").split()


def process_of(run, rank):
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{process}/cmdline", "rb").read().split(b"\0")
            environment = open(f"/proc/{process}/environ", "rb").read().split(b"\0")
        except OSError:
            continue
        if run.encode() in words and b"generate" == words[1] and f"OMPI_COMM_WORLD_RANK={rank}".encode() in environment:
            return int(process)
    return None


def has_begun(run):
    try:
        return json.load(open(f"{run}/progress.json"))["done"] >= 0 and os.path.getsize(f"{run}/jobs/1/record.log") > 8192
    except (OSError, ValueError, KeyError):
        return False


def disturb(job, run, rank):
    while job.poll() is None and not has_begun(run):
        time.sleep(0.1)
    time.sleep(2)
    process = process_of(run, rank)
    end = time.time() + 15
    while process and job.poll() is None and time.time() < end:
        os.kill(process, signal.SIGSTOP)
        time.sleep(0.02)
        os.kill(process, signal.SIGCONT)
        time.sleep(0.08)


def serve(folder, number, slow_rank):
    """The ranks that report names, and the seconds of the job."""
    run = f"{folder}/run-{number}"
    draw = random.Random(number)
    with open(f"{folder}/in.jsonl", "w") as requests:
        for _ in range(given.requests):
            prompt = [draw.randrange(3, 250) for _ in range(draw.randrange(8, 200))]
            print(json.dumps({"tokens": prompt, "max_tokens": draw.randrange(given.tokens // 4, given.tokens), "ignore_eos": True}), file=requests)
    command = launcher + [given.program, "generate", "--model", given.model, "--tp", "2", "--threads", "1", "--max-num-seqs", "16",
                          "--in", f"{folder}/in.jsonl", "--run-dir", run, "--quiet"]
    begun = time.time()
    job = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    if slow_rank is not None:
        disturb(job, run, slow_rank)
    if job.wait() != 0:
        raise SystemExit(f"a job failed: {' '.join(command)}")
    table = subprocess.run([given.program, "report", "--ranks", run], check=True, capture_output=True, text=True).stdout
    named = set(map(int, re.findall(r"^slow: rank (\d+)", table, re.M)))
    for line in re.findall(r"^slow: (?!none).*", table, re.M):
        print(f"  {line}")
    return named, time.time() - begun


with tempfile.TemporaryDirectory() as folder:
    found = others = false = 0
    for number in range(given.disturbed):
        rank = number % 2
        named, seconds = serve(folder, number, rank)
        found += rank in named
        others += bool(named - {rank})
        print(f"disturbed {number + 1}: rank {rank} slowed: named {sorted(named)} ({seconds:.0f} s)", flush=True)
    for number in range(given.undisturbed):
        named, seconds = serve(folder, 1000 + number, None)
        false += bool(named)
        print(f"undisturbed {number + 1}: named {sorted(named)} ({seconds:.0f} s)", flush=True)
    print(f"| slowed | named | another named | undisturbed | named |\n|--:|--:|--:|--:|--:|\n"
          f"| {given.disturbed} | {found} | {others} | {given.undisturbed} | {false} |")
