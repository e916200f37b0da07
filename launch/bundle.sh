#!/usr/bin/env bash
# Packs what a build made so that it runs elsewhere: the program, the tests with their data, Open MPI, and the shared libraries they need.
# usage: launch/bundle.sh [preset]     makes build/PRESET/maniple-bundle.tar.xz; unpacked anywhere, ./run starts what is in it
# It says which glibc the other machine must have at least. That brings, for GPUs, the driver and the CUDA libraries (too large to carry).
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/${1:-release}
bundle=$build/maniple-bundle
libraries=$bundle/usr/lib/x86_64-linux-gnu
most_bytes=64000000  # with CUDA code for five types of GPU
[ -x "$build/maniple" ] || { echo "there is no $build/maniple: build it first, launch/setup.sh ${1:-release}" >&2; exit 1; }

launch/install.sh xz-utils binutils
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

# What all of that needs, but for what belongs to the machine. The C++ library has a folder of its own: `run` takes it where the machine's is older.
theirs='^(ld-linux.*|lib(c|m|pthread|dl|rt|cuda[a-z]*|cublas[A-Za-z]*|nccl|nvJitLink))\.so'
mkdir -p "$libraries/c++"
{ find "$bundle/usr" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec ldd {} + 2>/dev/null || true; } |
  awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u | while read -r path; do
  library=${path##*/}
  case $library in libstdc++.so*|libgcc_s.so*) folder=$libraries/c++ ;; *) folder=$libraries ;; esac
  [[ $library =~ $theirs ]] || [ -e "$folder/$library" ] || cp -L "$path" "$folder/"
done

# The licences of all that: of the program, and of the Debian packages that the rest comes from.
mkdir "$bundle/licences"
cp LICENSE "$bundle/licences/maniple"
{ echo openmpi-bin openmpi-common libopenmpi3 libpmix2 | tr ' ' '\n'
  find "$libraries" -maxdepth 2 -name '*.so*' -printf '*/x86_64-linux-gnu/%f\n' | xargs dpkg -S 2>/dev/null | cut -d: -f1 || true; } | sort -u |
  while read -r package; do [ ! -e "/usr/share/doc/$package/copyright" ] || cp "/usr/share/doc/$package/copyright" "$bundle/licences/$package"; done
glibc=$({ find "$bundle/usr" -type f -exec objdump -T {} + 2>/dev/null || true; } | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)

tar -C "$build" --create --xz --file "$bundle.tar.xz" --owner=0 --group=0 maniple-bundle
bytes=$(stat -c %s "$bundle.tar.xz")
echo "$bundle.tar.xz: $((bytes / 1000)) kB; unpacked $(du -sh --apparent-size "$bundle" | cut -f1); needs ${glibc/_/ } or newer"
[ "$bytes" -lt $most_bytes ] || { echo "more than $most_bytes bytes" >&2; exit 1; }
