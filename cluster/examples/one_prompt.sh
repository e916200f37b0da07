#!/usr/bin/env bash
# One prompt on four ranks: the demo model in two replicas of two. usage: cluster/examples/one_prompt.sh ["PROMPT"]     after launch/quickstart.sh
set -euo pipefail
# shellcheck source=cluster/examples/lib.sh
. "$(dirname "$0")/lib.sh"
on_ranks 4 generate --model "$demo" --tp 2 --prompt "${1:-ROMEO:}" --max-tokens 60 --seed 7
