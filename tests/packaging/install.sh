#!/usr/bin/env bash
# The result of `cmake --install` for a build. usage: install.sh BUILD
. "$(dirname "$0")/lib.sh"
cmake --install "$1" --prefix "$work/prefix" >"$work/log" || bad "$(cat "$work/log")"
cd "$work/prefix"
for file in bin/maniple share/maniple/cluster/slurm/generate.sbatch share/doc/maniple/LICENSE share/doc/maniple/README.md \
  share/doc/maniple/launch/README.md share/maniple/modulefiles/maniple/* share/man/man1/maniple{,-generate}.1 \
  share/bash-completion/completions/maniple; do
  [ -s "$file" ] || bad "there is no $file"
done
[ -x share/maniple/cluster/slurm/chain ] || bad "the scripts cannot be executed"
mv bin/maniple "$work/installed"
objcopy --remove-section .nv_fatbin "$work/installed" bin/maniple  # code for one type of GPU has line numbers, with paths
! grep -rlF "$1" . || bad "files name the build folder"
mv "$work/installed" bin/maniple
dynamic=$(readelf -d bin/maniple)
[[ $dynamic != *libmpi_cxx* ]] || bad "libmpi_cxx is needed: Open MPI 5 does not have it"
[[ $dynamic == *NEEDED*libmpi* ]] || bad "MPI is not needed"
bin/maniple generate --model "$model" --prompt ROMEO: --max-tokens 4 >"$work/out" 2>"$work/err" || bad "$(cat "$work/err")"
[ -s "$work/out" ] || bad "no text"
