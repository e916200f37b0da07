#!/usr/bin/env bash
# The commands of launch/packaging/README.md, run by a user without any rights, into a prefix of his own. Debian's packages, unpacked into
# another folder, replace the libraries of conda or Spack.
. "$(dirname "$0")/lib.sh"
needs g++ cmake ninja-build pkg-config libopenmpi-dev  # the last one for its dependencies only: network libraries
mkdir "$work/home"
tar -C "$root" --create --gzip --exclude=./build --exclude=./.git --transform 's|^\.|maniple-0|' --file "$work/home/maniple-0.tar.gz" .
sed -n '/^```sh$/,/^```$/{/^```/d;p}' "$root/launch/packaging/README.md" >"$work/home/commands"
(($(wc -l <"$work/home/commands") == 4)) || bad "README.md does not have four commands"
cp "$root/tests/packaging/user.sh" "$work/home"
user=()
if [ "$(id -u)" = 0 ]; then
  chmod 711 "$work"
  chown -R nobody:nogroup "$work/home"
  user=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
fi
cd "$work/home"
"${user[@]}" env -i HOME="$work/home" PATH=/usr/bin:/bin CMAKE_GENERATOR=Ninja bash -euo pipefail user.sh
