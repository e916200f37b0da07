#!/usr/bin/env bash
# Makes a release of what is committed. usage: launch/packaging/release.sh [--url URL] [--no-bundle] [FOLDER]
#   FOLDER [build/dist] gets the tarball, the bundle, their SHA256SUMS, and the recipes of this folder with version, sum and URL filled in.
#   URL is where the site keeps the tarball; without it the recipes say so.
set -euo pipefail
cd "$(dirname "$0")/../.."
url=https://PUT.THE.ADDRESS.OF.THE.TARBALL.HERE bundle=yes
while [[ ${1:-} == --* ]]; do
  case $1 in
    --url) url=${2%/}; shift 2 ;;
    --no-bundle) bundle=no; shift ;;
    *) sed -n '2,4s/^# *//p' "$0" >&2; exit 64 ;;
  esac
done
folder=${1:-build/dist}
version=$(sed -n 's/^project(maniple VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=maniple-$version
grep -q "^## .*$version" CHANGELOG.md || { echo "CHANGELOG.md has no section of $version" >&2; exit 65; }
mkdir -p "$folder/packaging"

git archive --prefix="$name/" HEAD | gzip --no-name --best >"$folder/$name.tar.gz"
files=("$name.tar.gz")
if [ $bundle = yes ]; then
  launch/setup.sh release
  launch/bundle.sh release
  files+=("$name-$(uname -m).tar.xz")
  cp build/release/maniple-bundle.tar.xz "$folder/${files[1]}"
fi
(cd "$folder" && sha256sum "${files[@]}" | tee SHA256SUMS)

sum=$(sha256sum "$folder/$name.tar.gz" | cut -d' ' -f1)
for recipe in spack/package.py easybuild/maniple.eb conda/meta.yaml Containerfile apptainer.def; do
  mkdir -p "$folder/packaging/$(dirname $recipe)"
  git show "HEAD:launch/packaging/$recipe" | sed "s|@URL@|$url|g; s|@VERSION@|$version|g; s|@SHA256@|$sum|g" >"$folder/packaging/$recipe"
done
mv "$folder/packaging/easybuild/maniple.eb" "$folder/packaging/easybuild/$name-foss-2023b.eb"
echo "to publish: git tag v$version, and the files in $folder" >&2
