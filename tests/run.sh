#!/usr/bin/env bash
# Sets up, builds and passes the tests. usage: tests/run.sh [ctest arguments...]
set -euo pipefail
cd "$(dirname "$0")/.."
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HWLOC_COMPONENTS=-gl MANIPLE_WERROR=ON

launch/install.sh hdf5-tools python3-h5py gnuplot-nox
launch/setup.sh release
ctest --test-dir build/release -j $((2 * $(nproc))) --output-on-failure "$@"
