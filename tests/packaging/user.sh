# without_root.sh runs this as a user, in an empty home with the tarball and the commands.
mkdir debs libraries
packages=$(apt-cache depends --recurse --no-{recommends,suggests,conflicts,breaks,replaces,enhances} libopenmpi-dev libboost-program-options-dev \
  nlohmann-json3-dev libpcre2-dev libicu-dev libxxhash-dev libhdf5-dev zlib1g-dev libzstd-dev libfmt-dev | sort -u |
  grep -E '^(libopenmpi|openmpi-|libpmix|libhwloc15|libevent-|libboost.*(-dev|program-options.*)$|nlohmann-json3|libpcre2-(dev|8)|libicu|libxxhash|libhdf5-dev|zlib1g|libzstd|libfmt)')
# shellcheck disable=SC2086
(cd debs && apt-get -qq download $packages)
for package in debs/*.deb; do dpkg -x "$package" libraries; done
cp -a libraries/lib/. libraries/usr/lib/

# As `conda activate` or `spack load` would.
deps=$HOME/libraries/usr
machine=$(gcc -print-multiarch)
ln -s opal_wrapper "$deps/bin/mpicc"
ln -s orterun "$deps/bin/mpirun"
export PATH=$deps/bin:$PATH LD_LIBRARY_PATH=$deps/lib/$machine:$deps/lib/$machine/openmpi/lib CPATH=$deps/include:$deps/include/$machine
export CMAKE_PREFIX_PATH=$deps PKG_CONFIG_PATH=$deps/lib/$machine/pkgconfig PKG_CONFIG_SYSROOT_DIR=$HOME/libraries
export OPAL_PREFIX=$deps OPAL_SYSCONFDIR=$HOME/libraries/etc/openmpi PMIX_PKGLIBDIR=$deps/lib/$machine/pmix2/lib/pmix

. ./commands
maniple=$HOME/maniple/bin/maniple
# The program itself finds the libraries in the folder.
for library in libmpi libfmt libpcre2 libicuuc libxxhash libboost libz libzstd; do
  env -u LD_LIBRARY_PATH ldd "$maniple" | grep "$library[-._]" | grep -q "=> $deps" || { ldd "$maniple"; echo "FAILED: $library is another one" >&2; exit 1; }
done
run=(generate --model tests/data/models/shakespeare --prompt ROMEO: --max-tokens 8 --temperature 0)
"$maniple" "${run[@]}" >one
mpirun --oversubscribe --bind-to none --mca btl self,vader --mca plm isolated -n 2 "$maniple" "${run[@]}" --tp 2 >two </dev/null
cmp one two
