#!/usr/bin/env bash
# Every flag of nvcc in kernels/cuda/cuda.cmake is known to the oldest toolkit that it asks for, or stands behind a check of the version.
# The versions are those of the release notes and of `nvcc --help`.
set -euo pipefail
file=$(cd "$(dirname "$0")/../.." && pwd)/kernels/cuda/cuda.cmake
declare -A since=([--expt-relaxed-constexpr]=8.0 [-lineinfo]=5.0 [-Xcompiler]=1.0 [--Werror]=10.2 [-std]=12.0 [-gencode]=2.0 [--list-gpu-arch]=11.0 [-compress-mode]=12.8)
oldest=$(grep -oP 'find_package\(CUDAToolkit \K[0-9.]+' "$file" | sort -uV)
[ "$(wc -l <<<"$oldest")" = 1 ] || { echo "several oldest toolkits: ${oldest//$'\n'/, }" >&2; exit 1; }
older() { [ "$1" != "$2" ] && [ "$(printf '%s\n' "$1" "$2" | sort -V | head -1)" = "$1" ]; }
checked=0.0 failed=0
while read -r line; do
  if [[ $line =~ CUDA_COMPILER_VERSION\ VERSION_GREATER_EQUAL\ ([0-9.]+) ]]; then checked=${BASH_REMATCH[1]}; fi
  [[ ! $line =~ ^endif ]] || checked=0.0
  while read -r flag; do
    version=${since[$flag]:-}
    known=$(printf '%s\n' "$oldest" "$checked" | sort -V | tail -1)
    if [ -z "$version" ]; then
      echo "cuda.cmake: since which toolkit does nvcc know $flag? add it to this table" >&2
    elif older "$known" "$version"; then
      echo "cuda.cmake: nvcc knows $flag from $version on, and $oldest is asked for: check CMAKE_CUDA_COMPILER_VERSION" >&2
    else
      continue
    fi
    failed=1
  done < <(sed 's/#.*//; s/-Xcompiler=[^ ;"]*/-Xcompiler/g' <<<"$line" | grep -oP '(?<![\w$-])--?[A-Za-z][\w-]+(?=[=, ;"]|$)')
done <"$file"
exit $failed
