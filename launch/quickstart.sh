#!/usr/bin/env bash
# On a fresh Debian 12: installs, builds, and runs the demo model on four ranks (tensor size 2, two replicas).
set -euo pipefail
cd "$(dirname "$0")/.."
launch/setup.sh --quick release maniple

# Four ranks on any machine: more ranks than cores are fine, ranks are not bound to cores, root may run it, and mpirun does not look
# for X servers on localhost (it does so for the GPUs behind them, and waits a minute where a dead name server is asked for the name).
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HWLOC_COMPONENTS=-gl
mpirun=(mpirun --oversubscribe --bind-to none -n 4)
run=(build/release/maniple generate --model tests/data/models/shakespeare --tp 2 --prompt "ROMEO:" --max-tokens 120 --seed 7)
echo "+ ${mpirun[*]} ${run[*]@Q}" >&2
"${mpirun[@]}" "${run[@]}"
