#!/usr/bin/env python3
"""Tasks of lm-evaluation-harness by its own `hf` and by cluster/evaluation/maniple_lm.py, in fp32: the same choices, and sums within 1e-4 + 1e-5 of their size.

usage: against_lm_eval.py [--program PATH] [--launcher COMMAND] [--model DIR] [--max-length N] [--tasks TASK,...] [NAME=VALUE...]     (options for maniple, such as tp=2)

Without --tasks those of tests/data/evaluation, whose texts --max-length 24 cuts into windows. Needs Python with lm_eval, transformers, torch and accelerate."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def samples_of(command, model, options, asked, folder):
    arguments = ",".join(f"{name}={value}" for name, value in ({"pretrained": asked.model, "max_length": asked.max_length} | options).items() if value)
    subprocess.run([*command, "run", "--model", model, "--model_args", arguments, "--device", "cpu", "--tasks", asked.tasks, "--log_samples", "--output_path", folder],
                   cwd=ROOT, check=True)
    for path in sorted(folder.rglob("samples_*.jsonl")):
        for sample in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            yield path.name.rsplit("_", 1)[0], sample["doc_id"], [answer for (answer,) in sample["resps"]]


def numbers_of(answers):
    return [float(answer if isinstance(answer, str) else answer[0]) for answer in answers]


def best(sums):
    return max(range(len(sums)), key=sums.__getitem__)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/maniple"))
    parser.add_argument("--launcher", default="")
    parser.add_argument("--model", default=str(ROOT / "tests/data/models/shakespeare"))
    parser.add_argument("--max-length", default="")
    parser.add_argument("--tasks", default="tests/data/evaluation/shakespeare.yaml,tests/data/evaluation/shakespeare_texts.yaml")
    parser.add_argument("options", nargs="*")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        options = {"program": asked.program, "launcher": asked.launcher, "run_dir": scratch / "runs", "dtype": "fp32"} | dict(o.split("=", 1) for o in asked.options)
        ours = list(samples_of([sys.executable, "cluster/evaluation/maniple_lm.py"], "maniple", options, asked, scratch / "maniple"))
        theirs = list(samples_of([sys.executable, "-m", "lm_eval"], "hf", {"dtype": "float32"}, asked, scratch / "hf"))
    assert [name for *name, _ in ours] == [name for *name, _ in theirs], "other samples"
    worst = wrong = 0
    for (task, document, mine), (_, _, expected) in zip(ours, theirs):
        sums, right = numbers_of(mine), numbers_of(expected)
        error = max(abs(a - b) / (1e-4 + 1e-5 * abs(b)) for a, b in zip(sums, right, strict=True))
        flags = [answer[1] if isinstance(answer, list) else None for answers in (mine, expected) for answer in answers]
        worst = max(worst, error)
        if error > 1 or best(sums) != best(right) or flags[:len(mine)] != flags[len(mine):]:
            wrong += 1
            print(f"{task} {document}: {mine}, not {expected}")
    print(f"{len(ours)} samples, {wrong} wrong; the largest difference is {worst:.3f} of what is allowed")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
