#!/usr/bin/env bash
# Packs a build for other machines: the program, the tests with their data, Open MPI, and the shared libraries they need.
# usage: launch/bundle.sh [--gpu] [preset]     makes build/PRESET/maniple-bundle.tar.xz; unpack it anywhere and start its programs with ./run
# Prints the glibc that the other machine must have. For GPUs that machine needs the driver and the CUDA libraries (too large to pack).
# --gpu: maniple-gpu-bundle.tar.xz of a build for one type of GPU, to go beside a source tree: what its tests/gpu/run.sh --build starts.
set -euo pipefail
cd "$(dirname "$0")/.."
gpu=''
[ "${1:-}" != --gpu ] || { gpu=yes && shift; }
build=build/${1:-release}
bundle=$build/maniple-${gpu:+gpu-}bundle
libraries=$bundle/usr/lib/x86_64-linux-gnu
max_bytes=${gpu:+20000000}
max_bytes=${max_bytes:-80000000}  # with CUDA code for six types of GPU; 34 MB are data of the tests
[ -x "$build/maniple" ] || { echo "there is no $build/maniple: build it first, launch/setup.sh ${1:-release}" >&2; exit 1; }

programs=(maniple kernel_bench {primitives_gpu,cuda_kernels_gpu,kernels,model,engine,parallel_gpu}_test)  # with --gpu
if [ -n "$gpu" ]; then
  types=$(grep -oE '(sm|compute)_[0-9]+' "$build/build.ninja" | grep -oE '[0-9]+' | sort -nu | paste -sd ' ' || true)
  if ! [[ $types =~ ^[0-9]+$ ]]; then
    echo "$build has code for GPUs of ${types:-no type}, --gpu takes one: cmake --preset ${1:-release} -DCMAKE_CUDA_ARCHITECTURES=90-real, and build it again" >&2
    exit 1
  fi
  for name in "${programs[@]}"; do
    [ -x "$build/$name" ] || { echo "there is no $build/$name: build it first, launch/setup.sh ${1:-release}" >&2; exit 1; }
  done
fi

launch/install.sh xz-utils binutils
rm -rf "$bundle"
mkdir -p "$bundle/usr/bin"
if [ -n "$gpu" ]; then
  cp "${programs[@]/#/$build/}" "$bundle/usr/bin/"
else
  # Without stand-ins and emulated tiles, and without tests, and helpers of tests, of what only reads and writes files: they tell nothing about another machine.
  find "$build" -maxdepth 1 -type f -executable -regextype posix-extended \
    ! -regex '.*/(.*_rehearsed|(stand_in|amx_emulation|analysis|chat|convert|launch|cuda_launch|race|record|run_directory|scaling|scheduling|tokenizer)_test|make_record)' -exec cp {} "$bundle/usr/bin/" \;
  cp -r tests "$bundle/tests"
fi
strip "$bundle"/usr/bin/*
cp launch/run_in_bundle.sh "$bundle/run"

# Open MPI finds its parts by path, so the bundle keeps Debian's layout. Left out is what serves other languages, and the transports of networks:
# the bundle is for one node, and Debian's settings forbid most of them.
dpkg -L openmpi-bin openmpi-common libopenmpi3 libpmix2 |
  grep -E '^/(etc/openmpi/|usr/(bin/(orte|mpirun|mpiexec)|lib/|share/(openmpi|pmix)))' | grep -vE 'oshmem|libmpi_(cxx|java|mpifh|usempi)|mca_(btl_(ofi|openib)|mtl_|(pml|osc)_ucx|(atomic|spml|sshmem|scoll|memheap)_|common_(ofi|ucx|verbs))' | sort -u | cut -c 2- |
  tar -C / --create --no-recursion --files-from=- | tar -C "$bundle" --extract
ln -sf orterun "$bundle/usr/bin/mpirun"

# The libraries that all this needs, except the machine's own. The C++ library has its own folder: `run` uses it if the machine's is older.
theirs='^(ld-linux.*|lib(c|m|pthread|dl|rt|cuda[a-z]*|cublas[A-Za-z]*|nccl|nvJitLink))\.so'
mkdir -p "$libraries/c++"
{ find "$bundle/usr" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec ldd {} + 2>/dev/null || true; } |
  awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u | while read -r path; do
  library=${path##*/}
  case $library in libstdc++.so*|libgcc_s.so*) folder=$libraries/c++ ;; *) folder=$libraries ;; esac
  [[ $library =~ $theirs ]] || [ -e "$folder/$library" ] || cp -L "$path" "$folder/"
done

# The tests for GPUs need none of ICU's tables, 30 MB of compatibility forms, names and locales.
if [ -n "$gpu" ]; then
  for data in "$libraries"/libicudata.so.*; do cc -shared -fPIC -Wl,-soname,"${data##*/}" -o "$data" launch/packaging/empty_icu_data.c; done
fi

# The licences of the program and of the Debian packages in the bundle.
mkdir "$bundle/licences"
cp LICENSE "$bundle/licences/maniple"
{ echo openmpi-bin openmpi-common libopenmpi3 libpmix2 libhdf5-dev | tr ' ' '\n'
  find "$libraries" -maxdepth 2 -name '*.so*' -printf '*/x86_64-linux-gnu/%f\n' | xargs dpkg -S 2>/dev/null | cut -d: -f1 || true; } | sort -u |
  while read -r package; do [ ! -e "/usr/share/doc/$package/copyright" ] || cp "/usr/share/doc/$package/copyright" "$bundle/licences/$package"; done
glibc=$({ find "$bundle/usr" -type f -exec objdump -T {} + 2>/dev/null || true; } | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)

# The large dictionary of -9 finds what the programs have in common; --x86 makes calls of one function alike.
XZ_OPT='-T0 --x86 --lzma2=preset=9' tar -C "$build" --create --xz --file "$bundle.tar.xz" --owner=0 --group=0 "${bundle##*/}"
bytes=$(stat -c %s "$bundle.tar.xz")
echo "$bundle.tar.xz: $((bytes / 1000)) kB; unpacked $(du -sh --apparent-size "$bundle" | cut -f1); needs ${glibc/_/ } or newer"
[ "$bytes" -lt "$max_bytes" ] || { echo "more than $max_bytes bytes" >&2; exit 1; }
