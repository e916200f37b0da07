#!/usr/bin/env python3
"""Reads the results of a run in Python: the text of each request, and how many tokens there were.

usage: cluster/examples/read_results.py [RUN_DIR]     RUN_DIR: a run directory [default: build/examples/batch/run, that of batch.sh]
"""

import json
import sys
from pathlib import Path


def main():
    run = Path(sys.argv[1] if len(sys.argv) > 1 else "build/examples/batch/run")
    results = run / "results.jsonl"
    if not results.exists():
        sys.exit(f"{results} is not there yet: `maniple status {run}` says how the run stands")
    tokens = 0
    with results.open(encoding="utf-8") as lines:
        for line in lines:
            result = json.loads(line)
            tokens += result["usage"]["completion_tokens"]
            print(f"{result['id']} ({result['finish_reason']}): {result['text']!r}")
    errors = run / "errors.jsonl"
    failed = len(errors.read_text(encoding="utf-8").splitlines()) if errors.exists() else 0
    print(f"{tokens} tokens, {failed} failed requests")


if __name__ == "__main__":
    main()
