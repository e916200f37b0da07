#!/usr/bin/env bash
# Runs a compilation by nvcc. Fails where a kernel exceeds its budget of registers, spills or stack on any compiled architecture.
# usage: within_budget.sh register_budget.txt COMMAND...
set -uo pipefail
budget=$1
shift
log=$("$@" -Xptxas -v 2>&1)
status=$?
c++filt <<<"$log" | awk -v status=$status '
  NR == FNR { if (!/^#/ && NF) { registers[$1] = $2; spills[$1] = $3; frames[$1] = $4 } next }
  /Compiling entry function/ {
    match($0, /::[A-Za-z0-9_]+[<(]/)  # maniple::cuda::(anonymous namespace)::norm_row<float, true>(...)
    name = substr($0, RSTART + 2, RLENGTH - 3)
    architecture = $NF
    next
  }
  /bytes spill stores/ { frame = $1; spilt = $5; next }
  /Used [0-9]+ registers/ {
    if (!(name in registers)) complain("and has no line")
    else if ($5 > registers[name] || spilt > spills[name] || frame > frames[name])
      complain("more than " registers[name] ", " spills[name] " and " frames[name])
    next
  }
  /^ptxas info/ || /^$/ { next }
  { print }
  function complain(what) { print "register budget: " name " takes " $5 " registers, spills " spilt " bytes and has a frame of " frame " for " architecture ", " what; status = 1 }
  END { exit status }' "$budget" - >&2
