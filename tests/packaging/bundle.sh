#!/usr/bin/env bash
# The bundle of a build: it runs, needs the glibc that the README names, and holds the C++ library and all licences. usage: bundle.sh PRESET
. "$(dirname "$0")/lib.sh"
cd "$root"
launch/bundle.sh "$1" >"$work/said"
glibc=$(sed -n 's/.*needs \(GLIBC [0-9.]*\) or newer$/\1/p' "$work/said")
grep -iqF "$glibc or newer" cluster/guide/manual.md || bad "cluster/guide/manual.md does not say ${glibc:-(nothing)}: $(cat "$work/said")"
bundle=build/$1/maniple-bundle
for licence in maniple libstdc++6 libgcc-s1 libfmt9 libicu72 libopenmpi3; do
  [ -s "$bundle/licences/$licence" ] || bad "no licence of $licence"
done
carried=$(find "$bundle/usr" -name '*.so*' -type f | wc -l)
[ -e "$bundle/usr/lib/x86_64-linux-gnu/c++/libstdc++.so.6" ] && ((carried > 10)) || bad "it does not carry the C++ library"
"$bundle/run" maniple generate --model "$model" --prompt ROMEO: --max-tokens 4 >"$work/out" 2>"$work/err" || bad "$(cat "$work/err")"
[ -s "$work/out" ] || bad "no text"

# The one for GPUs is small, and is refused where the build has code for several types of GPU, or for none. Of several types it holds the same programs.
gpu=$1
if ! launch/bundle.sh --gpu "$1" >"$work/said" 2>&1; then
  grep -q 'code for GPUs of .*, --gpu takes one: ' "$work/said" || bad "$(cat "$work/said")"
  ! grep -q 'GPUs of no type' "$work/said" || exit 0
  gpu=$(realpath --relative-to=build "$work")/one-type
  mkdir "build/$gpu"
  find "$PWD/build/$1" -maxdepth 1 -type f -executable -exec ln -s -t "build/$gpu" {} +
  echo sm_90 >"build/$gpu/build.ninja"
  launch/bundle.sh --gpu "$gpu" >"$work/said" 2>&1 || bad "$(cat "$work/said")"
fi
bundle=build/$gpu/maniple-gpu-bundle
[ ! -e "$bundle/tests" ] || bad "test data twice"
for program in maniple kernel_bench engine_test mpirun; do [ -x "$bundle/usr/bin/$program" ] || bad "no $program"; done
"$bundle/run" maniple --version >"$work/out" || bad "the program of --gpu does not start"
