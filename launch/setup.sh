#!/usr/bin/env bash
# Installs the packages that maniple needs (Debian 12), configures and builds. usage: launch/setup.sh [preset] [target...]
#   launch/setup.sh                  the program and the tests, build/release
#   launch/setup.sh release maniple  only the program
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift $(($# > 0 ? 1 : 0))

launch/install.sh g++ cmake ninja-build ccache pkg-config libopenmpi-dev openmpi-bin libboost-program-options-dev nlohmann-json3-dev \
  libpcre2-dev libicu-dev libxxhash-dev libhdf5-dev zlib1g-dev libzstd-dev libfmt-dev libgtest-dev libgmock-dev

export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1  # one object serves several build folders
cmake --preset "$preset" -DMANIPLE_TESTS="$([ "$*" = maniple ] && echo OFF || echo ON)" \
  ${MANIPLE_WERROR:+-DMANIPLE_WERROR="$MANIPLE_WERROR"} >&2
cmake --build --preset "$preset" ${1:+--target "$@"} >&2
