#!/usr/bin/env bash
# kernels, parallel and layers compile for aarch64, with the headers of this machine's libraries.
. "$(dirname "$0")/lib.sh"
needs g++-aarch64-linux-gnu
cd "$root"
libraries=/usr/lib/$(gcc -print-multiarch)
cmake -G Ninja -S . -B build/aarch64 --toolchain launch/packaging/aarch64.cmake -DMANIPLE_TESTS=OFF -DMANIPLE_CUDA=OFF -DMANIPLE_WERROR=ON \
  -DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY -DCMAKE_PREFIX_PATH="$libraries/cmake" -DCMAKE_LIBRARY_PATH="$libraries"
cmake --build build/aarch64 --target maniple_kernels maniple_parallel maniple_parallel_mpi maniple_layers
