#!/usr/bin/env bash
# Checks the sources against .clang-format, shellcheck and .clang-tidy.
# usage: tests/lint.sh [--since COMMIT | file.cpp...]    clang-tidy reads the product files that changed since COMMIT, or these; all, which takes minutes, without
set -euo pipefail
cd "$(dirname "$0")/.."
launch/install.sh clang-format clang-tidy git shellcheck

git ls-files '*.cpp' '*.hpp' '*.inl' '*.cu' | xargs clang-format --dry-run --Werror

shellcheck .ci/run tests/*.sh tests/architecture/*.sh tests/gpu/*.sh launch/*.sh cluster/testbed/* cluster/slurm/* cluster/scaling/{run,study.sbatch} cluster/containers/* launch/packaging/*.sh

shellcheck -x cluster/examples/*.sh tests/examples/run.sh

launch/setup.sh lint maniple_commit  # configured, each file apart; nothing is compiled
mapfile -t product < <(git ls-files 'kernels/*.cpp' 'parallel/*.cpp' 'layers/*.cpp' 'runtime/*.cpp' 'launch/*.cpp')
if [ "${1:-}" = --since ]; then  # a header counts as its source file
  changed=$(git diff --name-only "$2" -- '*.cpp' '*.hpp' | sed 's/\.hpp$/.cpp/' | sort -u)
  mapfile -t product < <(printf '%s\n' "${product[@]}" | grep -Fx "$changed" || true)
elif [ $# -gt 0 ]; then
  product=("$@")
fi
echo "clang-tidy: ${#product[@]} files"
[ ${#product[@]} -eq 0 ] || printf '%s\n' "${product[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p build/lint --quiet
