#!/usr/bin/env bash
# Packs what a build made so that it runs elsewhere: the program, the tests with their data, Open MPI, and the shared libraries they need.
# usage: launch/bundle.sh [preset]     makes build/PRESET/maniple-bundle.tar.xz; unpacked anywhere, ./run starts what is in it
# The other machine brings a C++ library no older than this one's and, for GPUs, the driver and the CUDA libraries (too large to carry).
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/${1:-release}
bundle=$build/maniple-bundle
libraries=$bundle/usr/lib/x86_64-linux-gnu
most_bytes=50000000
[ -x "$build/maniple" ] || { echo "there is no $build/maniple: build it first, launch/setup.sh ${1:-release}" >&2; exit 1; }

launch/install.sh xz-utils
rm -rf "$bundle"
mkdir -p "$bundle/usr/bin"
find "$build" -maxdepth 1 -type f -executable ! -name '*_rehearsed' ! -name stand_in_test -exec cp {} "$bundle/usr/bin/" \;
strip "$bundle"/usr/bin/*
cp -r tests "$bundle/tests"
cp launch/run_in_bundle.sh "$bundle/run"

# Open MPI finds its parts by their place: it keeps Debian's layout, and Debian's settings (without them it takes transports that fail).
dpkg -L openmpi-bin openmpi-common libopenmpi3 libpmix2 |
  grep -E '^/(etc/openmpi/|usr/(bin/(orte|mpirun|mpiexec)|lib/|share/(openmpi|pmix)))' | sort -u | cut -c 2- |
  tar -C / --create --no-recursion --files-from=- | tar -C "$bundle" --extract
ln -sf orterun "$bundle/usr/bin/mpirun"

# What all of that needs, but for what belongs to the machine.
theirs='^(ld-linux.*|lib(c|m|pthread|dl|rt|gcc_s|stdc\+\+|cuda[a-z]*|cublas[A-Za-z]*|nccl|nvJitLink))\.so'
{ find "$bundle/usr" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec ldd {} + 2>/dev/null || true; } |
  awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u | while read -r path; do
  [[ ${path##*/} =~ $theirs ]] || [ -e "$libraries/${path##*/}" ] || cp -L "$path" "$libraries/"
done

tar -C "$build" --create --xz --file "$bundle.tar.xz" --owner=0 --group=0 maniple-bundle
bytes=$(stat -c %s "$bundle.tar.xz")
echo "$bundle.tar.xz: $((bytes / 1000)) kB; unpacked $(du -sh --apparent-size "$bundle" | cut -f1)"
[ "$bytes" -lt $most_bytes ] || { echo "more than $most_bytes bytes" >&2; exit 1; }
