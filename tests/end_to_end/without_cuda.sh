# A program built with CUDA, on a machine without CUDA: under the libraries' names the loader finds empty files first.
. "$HERE/lib.sh"
if readelf --dynamic "$MANIPLE" | grep -E 'NEEDED.*(cuda|cublas|nccl)'; then bad "the program does not start without these libraries"; fi
for library in libcuda.so.1 libcudart.so.{12,13} libcublasLt.so.{12,13} libnccl.so.2; do : >"$work/$library"; done
export LD_LIBRARY_PATH=$work

works() { "$MANIPLE" "$@" </dev/null >"$work/out" 2>"$work/err" || bad "$1: exit code $?: $(cat "$work/err")"; }
works --help
printf '{"prompt":"To be"}\n' >"$work/in"
works tokenize --model "$model" --in "$work/in" --out "$work/tokens"
works generate --model "$model" --in "$work/in" --max-tokens 4 --run-dir "$work/run"
grep -q '; cpu, ' "$work/err" || bad "generate: not on CPUs: $(cat "$work/err")"
works status "$work/run"
on 2 generate --model "$model" --in "$work/in" --max-tokens 4 >"$work/out" 2>"$work/err" || bad "two ranks: $(cat "$work/err")"
"$MANIPLE" generate --model "$model" --in "$work/in" --backend cuda >"$work/out" 2>"$work/err" </dev/null
(($? == 69)) || bad "on a GPU: not refused: $(cat "$work/err")"
finish
