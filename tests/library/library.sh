#!/usr/bin/env bash
# The library as a program of somebody else has it: installed, found, linked, run with 1, 2 and 4 ranks. usage: library.sh BUILD
. "$(dirname "$0")/../packaging/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
cmake --install "$1" --prefix "$work/prefix" >"$work/log" || bad "$(cat "$work/log")"
{ cmake -S "$here/outside" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release &&
  cmake --build "$work/build"; } >"$work/log" 2>&1 || bad "$(cat "$work/log")"
run=(mpirun --oversubscribe --allow-run-as-root --bind-to none --mca btl "self,vader" --mca mpi_yield_when_idle 1)
for ranks in 1 2 4; do
  text=$(timeout 100 "${run[@]}" -n $ranks "$work/build/between" "$model" 2>&1) || bad "$ranks ranks: $text"
  [ "$text" = passed ] || bad "$ranks ranks: $text"  # and nothing else is printed
done
ask=$(timeout 60 "${run[@]}" -n 2 "$work/build/ask" "$model" ROMEO: JULIET:) || bad "ask failed"
for prompt in ROMEO: JULIET:; do
  "$1/maniple" generate --model "$model" --prompt $prompt --temperature 0 --max-tokens 16 --dtype fp32 --quiet
done >"$work/program"
[ "$ask" = "$(cat "$work/program")" ] || bad "the library says '$ask', the program '$(cat "$work/program")'"
