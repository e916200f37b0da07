# Documents that the build generates: manual pages and the completion of bash, in use; the commit.
. "$HERE/lib.sh"
share=$(dirname "$MANIPLE")/share

say "manual pages"
pages=("$share"/man/man1/maniple.1 "$share"/man/man1/maniple-{generate,doctor,bench,tokenize,convert,status,merge,report,scaling}.1)
for page in "${pages[@]}"; do
  [[ -s $page ]] || bad "$page is missing"
  if command -v groff >/dev/null; then
    groff -man -Tutf8 -ww -z "$page" 2>"$work/err" || bad "groff does not read $page"
    [[ -s $work/err ]] && bad "groff warns: $(cat "$work/err")"
  fi
done
if command -v groff >/dev/null; then
  groff -man -Tascii -P-cbou -rLL=120n "${pages[1]}" >"$work/page" 2>&1
  for words in 'generate - continues prompts' '{"id":' '--block-size N (=256)' '-h, --help' 'mpirun -n 4 maniple generate'; do
    grep -Fq -- "$words" "$work/page" || bad "no \"$words\" in the page of generate"
  done
fi

say "completion"
# completed WORD...: the completions after these words.
completed() {
  bash -c '. "$1" && shift && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) && _maniple && printf "%s\n" "${COMPREPLY[@]}"' sh \
    "$share/bash-completion/completions/maniple" "$@" 2>"$work/err" | sort | xargs
  [[ -s $work/err ]] && bad "completion of $*: $(cat "$work/err")"
}
offers() {  # EXPECTED WORD...
  local expected=$1 got
  shift
  got=$(completed "$@")
  [[ $got == "$expected" ]] || bad "after \"$*\": $got, not $expected"
}
cd "$work" && mkdir folder && touch file.jsonl
offers "--help --version bench convert doctor generate merge report scaling status tokenize" maniple ""
offers "doctor" maniple d
offers "--max-model-len --max-num-batched-tokens --max-num-seqs --max-tokens" maniple generate --max
offers "auto bf16 fp16 fp32" maniple generate --dtype ""
offers "bf16" maniple generate --tp 2 --dtype = b
offers "auto bf16 fp16 fp32" maniple doctor --dtype =
offers "folder" maniple generate --model fo
offers "" maniple generate --model file
offers "file.jsonl" maniple generate --in fi
offers "" maniple generate --tp ""
offers "folder" maniple status fol
offers "comm kernels latency load throughput" maniple bench ""
offers "load" maniple bench lo
offers "next plan" maniple scaling ""
offers "--rc --run-dir" maniple status --r

say "a tarball has no commit, nor that of a repository around it"
git init -q "$work" 2>/dev/null && mkdir unpacked
cmake -DSOURCE="$work/unpacked" -DHEADER="$work/commit.hpp" -P "$HERE/../../launch/write_commit.cmake" || bad "no commit.hpp"
grep -qx '#define MANIPLE_COMMIT "unknown"' commit.hpp || bad "$(cat commit.hpp)"
finish
