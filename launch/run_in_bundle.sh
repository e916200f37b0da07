#!/usr/bin/env bash
# Starts a command of the bundle in whose root this is. usage: ./run COMMAND...
#   ./run maniple generate ...     ./run mpirun -n 4 maniple generate ...     ./run kernels_test
set -euo pipefail
[ $# -gt 0 ] || { sed -n 's/^# *//; 2,3p' "$0"; exit 64; }
root=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
libraries=$root/usr/lib/x86_64-linux-gnu
path=$libraries:$libraries/openmpi/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# The bundle's C++ library is for machines whose own is older.
! LD_LIBRARY_PATH=$path ldd "$root/usr/bin/maniple" 2>&1 | grep -q 'GLIBCXX.*not found' || path=$libraries/c++:$path

# The machine's CUDA libraries, from a toolkit or from Python wheels, come last in the path.
wheels=$(python3 -c 'import sys; print(*filter(None, sys.path), sep="\n")' 2>/dev/null || true)
while read -r folder; do
  [ ! -d "$folder" ] || path+=:$folder
done < <(printf '%s\n' "${CUDA_HOME:-/usr/local/cuda}"/lib{64,} /usr/local/cuda-*/lib{64,}
         for packages in $wheels; do printf '%s\n' "$packages"/nvidia/*/lib; done)

export PATH=$root/usr/bin:$PATH LD_LIBRARY_PATH=$path
export OPAL_PREFIX=$root/usr OPAL_SYSCONFDIR=$root/etc/openmpi
export PMIX_PKGLIBDIR=$libraries/pmix2/lib/pmix PMIX_PKGDATADIR=$libraries/pmix2/share/pmix
[ ! -d "$root/tests" ] || export MANIPLE_TEST_DATA=$root/tests/data
# Without ssh on the machine, mpirun must not look for it.
command -v ssh >/dev/null || export OMPI_MCA_plm=isolated
exec "$@"
