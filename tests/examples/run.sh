#!/usr/bin/env bash
# The example jobs run as they stand. usage: run.sh BUILD
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export MANIPLE=$1/maniple
fail() { echo "FAILED: $1: $(cat "$work/out" "$work/err")" && exit 1; }
example() {  # NAME WORDS... : it succeeds and prints the words
  local name=$1 words=$2
  shift 2
  "cluster/examples/$name" "$@" >"$work/out" 2>"$work/err" || fail "$name ends with $?"
  grep -q "$words" "$work/out" || fail "$name does not print '$words'"
}
example one_prompt.sh '[a-z]' "ROMEO:"
example batch.sh 'complete' "$work/batch"
example batch.sh 'complete' "$work/batch"
grep -q 'is complete' "$work/err" || fail "the batch ran again"
example read_results.py '^80 tokens, 0 failed requests$' "$work/batch/run"
example scaling.sh '^ *2 ' "$work/scaling"
MANIPLE=$work/nothing cluster/examples/batch.sh "$work/none" >"$work/out" 2>"$work/err" && fail "batch.sh without the program"
grep -q 'run launch/quickstart.sh first' "$work/err" || fail "no hint"
