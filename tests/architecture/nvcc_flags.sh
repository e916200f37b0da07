#!/usr/bin/env bash
# Every flag that the build gives to nvcc is known to the oldest toolkit that cuda.cmake asks for, or stands behind a check of the version.
# The versions are those of the release notes and of `nvcc --help`.
set -euo pipefail
cd "$(dirname "$0")/../.."
cmake=kernels/cuda/cuda.cmake
declare -A since=([--expt-relaxed-constexpr]=8.0 [-lineinfo]=5.0 [-Xcompiler]=1.0 [-Xptxas]=1.0 [--Werror]=10.2 [-std]=12.0 [-gencode]=2.0
  [--list-gpu-arch]=11.0 [-compress-mode]=12.8)
declare -A met=()
oldest=$(grep -oP 'find_package\(CUDAToolkit \K[0-9.]+' $cmake | sort -uV)
[ "$(wc -l <<<"$oldest")" = 1 ] || { echo "several oldest toolkits: ${oldest//$'\n'/, }" >&2; exit 1; }
older() { [ "$1" != "$2" ] && [ "$(printf '%s\n' "$1" "$2" | sort -V | head -1)" = "$1" ]; }
failed=0
complain() { echo "$*" >&2; failed=1; }
read_flags() { # FILE
  local checked=0.0 line flag version known
  while read -r line; do
    [[ ! $line =~ ^(else|endif) ]] || checked=0.0
    [[ ! $line =~ ^(else)?if\(CMAKE_CUDA_COMPILER_VERSION\ VERSION_GREATER_EQUAL\ ([0-9.]+)\)$ ]] || checked=${BASH_REMATCH[2]}
    while read -r flag; do
      version=${since[$flag]:-} met[$flag]=yes
      known=$(printf '%s\n' "$oldest" "$checked" | sort -V | tail -1)
      if [ -z "$version" ]; then
        complain "$1: since which toolkit does nvcc know $flag? add it to this table"
      elif older "$known" "$version"; then
        complain "$1: nvcc knows $flag from $version on, and $oldest is asked for: check CMAKE_CUDA_COMPILER_VERSION"
      fi
    done < <(sed 's/#.*//; s/^set -.*//; s/-Xcompiler=[^ ;")]*/-Xcompiler/g' <<<"$line" | grep -oP '(?<![\w$}-])--?[A-Za-z][\w-]+(?=[=, ;")>]|$)')
  done <"$1"
}
files=$(grep -rlE -e '--expt-relaxed-constexpr|-Xptxas|COMPILE_LANGUAGE:CUDA|CMAKE_CUDA_FLAGS' --include=CMakeLists.txt --include='*.cmake' --include=within_budget.sh \
  CMakeLists.txt kernels parallel layers runtime launch tests)
for file in $files; do read_flags "$file"; done
for flag in "${!since[@]}"; do [ -n "${met[$flag]:-}" ] || complain "nothing gives $flag to nvcc any more: was it lost? if not, take it out of this table"; done
grep -qE '^ *foreach\(architecture [0-9 ]*\<120\>' $cmake || complain "$cmake: no code for GPUs of 12.0"
exit $failed
