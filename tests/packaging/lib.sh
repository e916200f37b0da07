# Shared by the tests of installing: root is the source tree, work a folder that is removed after the test.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/maniple-packaging.XXXXXX")
trap 'rm -rf "$work"' EXIT
model=$root/tests/data/models/shakespeare
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1  # shares objects with other build folders
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

bad() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# needs PACKAGE...: skips the test (77) where they cannot be installed, but not in .ci/run.
needs() {
  "$root/launch/install.sh" "$@" && return
  echo "skipped: cannot install $*" >&2
  [ -z "${TESTBED_REQUIRED:-}" ] || exit 1
  exit 77
}
