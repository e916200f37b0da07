#!/usr/bin/env bash
# Installs the packages that maniple needs (Debian 12), configures and builds. usage: launch/setup.sh [--quick] [preset] [target...]
#   launch/setup.sh                  the program and the tests, build/release
#   launch/setup.sh release maniple  only the program
#   --quick: a new build folder compiles the files of a folder together, and GPU code for the GPUs of this machine alone (without one: sm_90,
#   and PTX for later ones from 8.0); a folder that exists stays as it is. Without --quick: each file apart, all types of GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
quick=''
[ "${1:-}" != --quick ] || { quick=yes && shift; }
preset=${1:-release}
shift $(($# > 0 ? 1 : 0))

launch/install.sh g++ cmake ninja-build ccache pkg-config libopenmpi-dev openmpi-bin libboost-program-options-dev nlohmann-json3-dev \
  libpcre2-dev libicu-dev libxxhash-dev libhdf5-dev zlib1g-dev libzstd-dev libfmt-dev libgtest-dev libgmock-dev

options=(-DMANIPLE_TESTS="$([[ "$*" =~ ^maniple(_commit)?$ ]] && echo OFF || echo ON)")
[ -z "${MANIPLE_WERROR:-}" ] || options+=(-DMANIPLE_WERROR="$MANIPLE_WERROR")
if [ -z "$quick" ]; then
  options+=(-UCMAKE_CUDA_ARCHITECTURES)
  [ "$preset" != release ] || options+=(-DMANIPLE_UNITY=OFF)
elif [ ! -e "build/$preset/CMakeCache.txt" ]; then
  gpus=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -u | sed 's/[.]//; s/$/-real/' | paste -sd ';' || true)
  options+=(-DMANIPLE_UNITY=ON -DCMAKE_CUDA_ARCHITECTURES="${CUDAARCHS:-${gpus:-90-real;80-virtual}}")
fi

export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1  # one object serves several build folders
cmake --preset "$preset" "${options[@]}" >&2
cmake --build --preset "$preset" ${1:+--target "$@"} >&2
