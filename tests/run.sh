#!/usr/bin/env bash
# Sets up, builds and passes the tests. usage: tests/run.sh [--quick] [ctest arguments...]
#   --quick: for each change, at most 5 minutes on two cores after the build: without what takes long (label whole) or needs a second build
set -euo pipefail
cd "$(dirname "$0")/.."
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HWLOC_COMPONENTS=-gl
chosen=()
[ "${1:-}" != --quick ] || { chosen=(-LE 'whole|packaging|rehearsal|slurm|gpu') && shift; }

launch/install.sh hdf5-tools python3-h5py gnuplot-nox
# What counts the kernels' instructions (tests/gpu/machine_code.py), where the toolkit has nvcc alone.
if command -v nvcc >/dev/null && ! command -v cuobjdump >/dev/null && [ ! -e build/cuda-tools/done ]; then
  launch/install.sh python3-venv
  python3 -m venv build/cuda-tools
  if build/cuda-tools/bin/pip install -q nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm; then touch build/cuda-tools/done; fi
fi
launch/setup.sh --quick release
ctest --test-dir build/release -j $((2 * $(nproc))) --output-on-failure "${chosen[@]}" "$@"
