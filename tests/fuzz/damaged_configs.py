#!/usr/bin/env python3
"""Gives each field of a model's config.json other values, one at a time, and generates: it is refused with one message and a documented exit code, or runs.
usage: damaged_configs.py PROGRAM MODEL_DIR..."""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

VALUES = [None, -1, 0, 1, 3, 7, 33, 1e9, -1.5, 0.5, 1e300, 2**31, 2**32, 2**40, "x", "", [], {}, True, False, ["sliding_attention"], ["full_attention"] * 4]
REQUEST = {"tokens": list(range(5, 40)), "max_tokens": 3, "temperature": 0}
ABSENT = object()


def fields(config, path=()):
    """(object, name, path) of each field, those of objects inside too"""
    for name, value in list(config.items()):
        yield config, name, (*path, name)
        if isinstance(value, dict):
            yield from fields(value, (*path, name))


def main(program, models):
    for model in map(pathlib.Path, models):
        counts = collections.Counter()
        config = json.loads((model / "config.json").read_text())
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for path in model.iterdir():
                if path.name != "config.json":
                    (folder / path.name).symlink_to(path.resolve())
            (folder / "in.jsonl").write_text(json.dumps(REQUEST) + "\n")
            for owner, field, path in list(fields(config)):
                stored = owner[field]
                for value in [*VALUES, ABSENT]:
                    if value is ABSENT:
                        del owner[field]
                    else:
                        owner[field] = value
                    (folder / "config.json").write_text(json.dumps(config))
                    owner[field] = stored
                    command = [program, "generate", "--model", folder, "--in", folder / "in.jsonl", "--dtype", "fp32", "--threads", "1", "--kv-memory", "20M"]
                    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
                    counts[done.returncode] += 1
                    if done.returncode not in (0, 1, 64, 65, 69, 71) or (done.returncode > 1) != (done.stderr.count("maniple: error:") == 1):
                        sys.exit(f"{model.name}: {'.'.join(path)} = {value!r}: exit code {done.returncode}\n{done.stderr}")
        print(f"{model.name}: {dict(counts)}", flush=True)


if __name__ == "__main__":
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "HWLOC_COMPONENTS": "-gl"}
    main(sys.argv[1], sys.argv[2:])
