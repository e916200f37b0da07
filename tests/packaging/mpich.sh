#!/usr/bin/env bash
# The program over MPICH instead of Open MPI: the contract of groups on 1 to 4 ranks, and the same text as one process without MPI.
. "$(dirname "$0")/lib.sh"
needs mpich libmpich-dev
cd "$root"
build=build/mpich
cmake -G Ninja -S . -B $build -DCMAKE_BUILD_TYPE=Release -DMANIPLE_CUDA=OFF -DMANIPLE_WERROR=ON -DMANIPLE_UNITY=ON \
  -DMPI_C_COMPILER=mpicc.mpich -DMPIEXEC_EXECUTABLE="$(command -v mpiexec.mpich)"
cmake --build $build --target maniple parallel_mpi_test
readelf -d $build/maniple | grep -q 'NEEDED.*libmpich' || bad "it is not linked with MPICH"

ctest --test-dir $build -R parallel_mpi_test --no-tests=error --output-on-failure
run=(generate --model "$model" --in tests/end_to_end/prompts.jsonl --seed 42 --max-tokens 24 --fail-on none)
$build/maniple "${run[@]}" >"$work/one"
for grid in "2 --tp 2" "4 --tp 2"; do
  # shellcheck disable=SC2086
  mpiexec.mpich -n "${grid%% *}" $build/maniple "${run[@]}" ${grid#* } >"$work/several" </dev/null
  cmp "$work/one" "$work/several" || bad "$grid: another output than one process's"
done
