#!/usr/bin/env bash
# A batch that resumes: prompts from a text file, results in a run directory. The same line again does what is left, and nothing when all is done.
# usage: cluster/examples/batch.sh [FOLDER]     FOLDER: of the run [default: build/examples/batch]
set -euo pipefail
# shellcheck source=cluster/examples/lib.sh
. "$(dirname "$0")/lib.sh"
folder=$(folder_of "${1:-build/examples/batch}")
printf '%s\n' "ROMEO:" "JULIET:" "First Citizen:" "Enter the Prince" >"$folder/prompts.txt"
on_ranks 2 generate --model "$demo" --in "$folder/prompts.txt" --run-dir "$folder/run" --max-tokens 20 --seed 1
"$maniple" status "$folder/run"
head -n 2 "$folder/run/results.jsonl"
