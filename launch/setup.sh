#!/usr/bin/env bash
# Installs what maniple needs (Debian 12 packages), configures and builds. usage: launch/setup.sh [preset] [target...]
#   launch/setup.sh                  the program and the tests, build/release
#   launch/setup.sh release maniple  the program alone
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift $(($# > 0 ? 1 : 0))

packages=(g++ cmake ninja-build ccache pkg-config libopenmpi-dev openmpi-bin libboost-program-options-dev nlohmann-json3-dev
  libpcre2-dev libicu-dev libxxhash-dev libhwloc-dev libfmt-dev libgtest-dev libgmock-dev)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing: ${missing[*]}" >&2
  root=()
  [ "$(id -u)" = 0 ] || root=(sudo)
  "${root[@]}" apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi

# A clone without history, or a copy of the tree, builds as well.
cmake --preset "$preset" -DMANIPLE_TESTS="$([ "$*" = maniple ] && echo OFF || echo ON)" >&2
cmake --build --preset "$preset" ${1:+--target "$@"} >&2
