#!/usr/bin/env bash
# A small scaling study: the throughput of the demo model on one rank and on two. The same line again goes on with it.
# usage: cluster/examples/scaling.sh [FOLDER]     FOLDER: of the study [default: build/examples/scaling]
set -euo pipefail
# shellcheck source=cluster/examples/lib.sh
. "$(dirname "$0")/lib.sh"
folder=$(folder_of "${1:-build/examples/scaling}")
"$maniple" scaling plan "$folder/study" --model "$demo" --dp 1,2 --rounds 1 --num-prompts 8 --lengths fixed:16/16 --threads 1 --launcher "$mpirun -n {ranks}"
MANIPLE=$maniple cluster/scaling/run "$folder/study"
"$maniple" report "$folder/study"
