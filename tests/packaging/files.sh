#!/usr/bin/env bash
# The recipes of launch/packaging: their syntax, as far as this machine has the tools, and their content in a release.
. "$(dirname "$0")/lib.sh"
packaging=$root/launch/packaging
# here PROGRAM WHAT: whether the program is installed; otherwise prints that WHAT is not checked.
here() { command -v "$1" >/dev/null || { echo "NOT CHECKED: $2 (no $1 here)"; return 1; }; }

for script in "$packaging"/*.sh; do bash -n "$script" || bad "$script"; done
sed -n '/^%post/,/^%runscript/{/^%/d;p}' "$packaging/apptainer.def" >"$work/post"
sed -n '/^RUN /,$p' "$packaging/Containerfile" | sed 's/^RUN //' >"$work/run"
for steps in post run; do
  grep -q into_image "$work/$steps" || bad "$steps of the image does not build"
  sh -n "$work/$steps" || bad "$steps of the image"
done

if here tclsh modulefile; then
  mkdir -p "$work/prefix/share/maniple/modulefiles/maniple"
  cp "$packaging/modulefile" "$work/prefix/share/maniple/modulefiles/maniple/1"
  found=$(tclsh <<END
proc module-whatis {text} {}
proc conflict {name} {}
proc setenv {name value} { puts "\$name=\$value" }
proc prepend-path {name value} { puts "\$name=\$value" }
set ModulesCurrentModulefile $work/prefix/share/maniple/modulefiles/maniple/1
source \$ModulesCurrentModulefile
END
  )
  [[ $found == *"PATH=$work/prefix/bin"*"MANIPLE_CLUSTER=$work/prefix/share/maniple/cluster"* ]] || bad "modulefile: $found"
fi
if here python3 "spack, easybuild"; then
  for recipe in spack/package.py easybuild/maniple.eb; do
    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$packaging/$recipe" || bad "$recipe"
  done
  if python3 -c 'import yaml' 2>/dev/null; then
    sed 's/^{%.*//; s/{{[^}]*}}/x/; s/  # \[.*//' "$packaging/conda/meta.yaml" >"$work/meta.yaml"
    for file in "$work/meta.yaml" "$root/CITATION.cff"; do
      python3 -c 'import sys, yaml; assert isinstance(yaml.safe_load(open(sys.argv[1])), dict)' "$file" || bad "$file"
    done
  else
    echo "NOT CHECKED: conda, CITATION.cff (no yaml for python3 here)"
  fi
fi

if here git release && git -C "$root" rev-parse HEAD >/dev/null 2>&1; then
  "$packaging/release.sh" --url https://example.org/files --no-bundle "$work/dist" 2>"$work/err" || bad "release.sh: $(cat "$work/err")"
  cd "$work/dist"
  sha256sum --check --quiet SHA256SUMS
  read -r sum tarball <SHA256SUMS
  tar --list --file "$tarball" "${tarball%.tar.gz}/CMakeLists.txt" >/dev/null
  cd packaging
  for recipe in spack/package.py easybuild/*.eb conda/meta.yaml Containerfile apptainer.def; do
    grep -q "$sum" "$recipe" || bad "$recipe does not have the tarball's sum"
    ! grep -E '@(URL|VERSION|SHA256)@' "$recipe" || bad "$recipe has blanks"
  done
fi
