# Shared by the tests of bench, after lib.sh.
python=/usr/bin/python3  # the one that Debian's h5py is for

# bench RANKS CODE options...: its output goes to $work/out and $work/err.
bench() {
  local ranks=$1 code=$2 rc
  shift 2
  say "bench: $ranks ranks $*"
  on "$ranks" bench "$@" >"$work/out" 2>"$work/err"
  rc=$?
  ((rc == code)) || bad "bench $*: exit code $rc, not $code: $(cat "$work/out" "$work/err")"
}
says() { grep -Eq -- "$1" "$work/${2:-out}" || bad "bench does not say \"$1\": $(cat "$work/out" "$work/err")"; }
# holds FILE.json 'python expression of j and row(tensor, part, tokens, context), of kernels'
holds() {
  $python -c 'import json, sys
j = json.load(open(sys.argv[1]))
row = lambda *key: next(r for r in j["rows"] if (r["tensor"], r["part"], r["tokens"], r["context"]) == key)
assert eval(sys.argv[2]), j' "$@" 2>"$work/why" || bad "$2: $(cat "$work/why")"
}
# keeps FILE.h5 'python expression of f, the open record, t(name), a text of its provenance, and values(metric)'
keeps() {
  $python -c 'import h5py, sys
f = h5py.File(sys.argv[1])
t = lambda name: f["provenance"][name][()].decode()
values = lambda metric: [row["value"] for row in f["samples"][:] if row["metric"].decode() == metric]
assert eval(sys.argv[2]), {name: list(table[:]) for name, table in f.items() if name in ("requests", "kernels", "roofline", "summary")}' "$@" 2>"$work/why" || bad "$1: $2: $(cat "$work/why")"
}
