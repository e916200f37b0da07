#!/usr/bin/env bash
# In an image of Debian 12 or Ubuntu 24.04, as root: builds, installs into /usr/local, and removes the packages that only the build needed.
set -euo pipefail
cd "$(dirname "$0")/../.."
before=$(apt-mark showmanual | sort)
CCACHE_DISABLE=1 launch/setup.sh release maniple
cmake --install build/release --prefix /usr/local --strip

# Of the packages that the build installed, keeps those with libraries of the program, and mpirun with its plug-ins.
packages_needed() {
  ldd /usr/local/bin/maniple | awk '$3 ~ "^/" { print $1 }' | while read -r library; do dpkg -S "*/$library" 2>/dev/null || true; done |
    cut -d: -f1 | sort -u
}
comm -13 <(echo "$before") <(apt-mark showmanual | sort) | xargs -r apt-mark auto >/dev/null
packages_needed | xargs apt-mark manual openmpi-bin >/dev/null
apt-get autoremove -y --purge
rm -rf /var/lib/apt/lists/*
/usr/local/bin/maniple --version
