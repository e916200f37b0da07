#!/usr/bin/env bash
# No circle among the includes of files or of folders, no tool in the folders of a job, and no product file above 450 lines.
set -euo pipefail
cd "$(dirname "$0")/../.."
folders=(kernels parallel layers runtime launch)
mapfile -t sources < <(find "${folders[@]}" -type f -regex '.*\.\(cpp\|hpp\|cu\|inl\)' | sort)

# Pairs "including included" of files of this repository. <kernels/ops.hpp> is a path; a name without a folder is next to the including file.
pairs=$(awk '/^#include [<"]/ {
    split($2, part, /[<>"]/); name = part[2]
    if (name !~ "^(kernels|parallel|layers|runtime|launch)/" && $2 ~ /^"/) { folder = FILENAME; sub("/[^/]*$", "", folder); name = folder "/" name }
    if (name ~ "^(kernels|parallel|layers|runtime|launch)/") print FILENAME, name
  }' "${sources[@]}")

failed=0
no_circle() {  # WHAT; pairs on stdin
  local circle
  circle=$(tsort 2>&1 >/dev/null) || true
  [[ -z $circle ]] || { printf 'a circle among the includes of %s:\n%s\n' "$1" "$circle" && failed=1; }
}
# The folders of a job know nothing of the tools, which stand on them.
upwards=$(grep -E '^launch/[^ ]* launch/tools/' <<<"$pairs" | grep -vE '^launch/(tools/|commands\.cpp)' || true)
[[ -z $upwards ]] || { printf 'includes of tools in folders of a job:\n%s\n' "$upwards" && failed=1; }
no_circle files <<<"$pairs"
no_circle folders < <(sed -E 's#/[^/ ]*( |$)#\1#g' <<<"$pairs" | awk '$1 != $2' | sort -u)

wc -l "${sources[@]}" | awk '$2 != "total" && $1 > 450 { print $2 " has " $1 " lines: more than 450"; long = 1 } END { exit long }' || failed=1
(($(wc -l <<<"$pairs") > 300)) || { echo "no includes were found" && failed=1; }
exit $failed
