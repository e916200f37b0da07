#!/usr/bin/env bash
# kernels, parallel and layers compile for aarch64, with the headers of this machine's libraries. Once a day on a machine.
. "$(dirname "$0")/lib.sh"
done_today=${XDG_CACHE_HOME:-$HOME/.cache}/maniple/aarch64-$(date +%F)
[ ! -e "$done_today" ] || { echo "skipped: passed today already (remove $done_today to run it again)"; exit 77; }
needs g++-aarch64-linux-gnu
cd "$root"
libraries=/usr/lib/$(gcc -print-multiarch)
cmake -G Ninja -S . -B build/aarch64 --toolchain launch/packaging/aarch64.cmake -DMANIPLE_TESTS=OFF -DMANIPLE_UNITY=ON -DMANIPLE_CUDA=OFF -DMANIPLE_WERROR=ON \
  -DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY -DCMAKE_PREFIX_PATH="$libraries/cmake" -DCMAKE_LIBRARY_PATH="$libraries"
cmake --build build/aarch64 --target maniple_kernels maniple_parallel maniple_parallel_mpi maniple_layers
mkdir -p "${done_today%/*}"
rm -f "${done_today%/*}"/aarch64-*
touch "$done_today"
