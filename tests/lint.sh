#!/usr/bin/env bash
# Checks the sources against .clang-format and .clang-tidy: minutes, so not a part of run.sh. usage: tests/lint.sh [file.cpp...]
set -euo pipefail
cd "$(dirname "$0")/.."
launch/install.sh clang-format clang-tidy git shellcheck

git ls-files '*.cpp' '*.hpp' '*.inl' '*.cu' | xargs clang-format --dry-run --Werror

shellcheck cluster/testbed/* cluster/slurm/* cluster/containers/* launch/packaging/*.sh

MANIPLE_WERROR=ON launch/setup.sh release maniple
product=("$@")
[ ${#product[@]} -gt 0 ] || mapfile -t product < <(git ls-files 'kernels/*.cpp' 'parallel/*.cpp' 'layers/*.cpp' 'runtime/*.cpp' 'launch/*.cpp')
printf '%s\n' "${product[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p build/release --quiet
