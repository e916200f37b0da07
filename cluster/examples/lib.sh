# shellcheck shell=bash disable=SC2034,SC2164
# What the examples share: the program, the demo model, and mpirun on any machine (more ranks than cores are fine, and root may run it).
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
maniple=${MANIPLE:-build/release/maniple}
[[ -x $maniple ]] || { echo "${0##*/}: $maniple is not built; run launch/quickstart.sh first" >&2 && exit 69; }
demo=tests/data/models/shakespeare
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HWLOC_COMPONENTS=-gl
mpirun='mpirun --oversubscribe --bind-to none'
on_ranks() {  # RANKS COMMAND...
  $mpirun -n "$1" "$maniple" "${@:2}"
}
folder_of() { mkdir -p "$1" && (cd "$1" && pwd); }
