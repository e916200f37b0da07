#!/usr/bin/env bash
# CONTRIBUTING.md names files and functions: they are there.
# shellcheck disable=SC2016  # back quotes are text here
set -euo pipefail
cd "$(dirname "$0")/../.."
failed=0 stops=0
while read -r file function; do
  stops=$((stops + 1))
  grep -qsE "(^|[ :*&])$function\(" "$file" || { echo "CONTRIBUTING.md: there is no $function in $file" && failed=1; }
done < <(sed -nE 's/^\| `([a-z/_]+\.cpp)` \| `([a-z_]+)`.*/\1 \2/p' CONTRIBUTING.md)
((stops == 24)) || { echo "CONTRIBUTING.md: the tour has $stops stops, not 24" && failed=1; }
# A name without an ending stands for NAME.hpp and NAME.cpp.
while read -r name; do
  [[ -e $name || -e $name.hpp ]] || { echo "CONTRIBUTING.md: there is no $name" && failed=1; }
done < <(grep -oE '`(kernels|parallel|layers|runtime|launch|tests|cluster)/[A-Za-z0-9_./-]+`' CONTRIBUTING.md | tr -d '`')
exit $failed
