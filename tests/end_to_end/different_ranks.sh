# Ranks with different options or different files: one message names them before the job computes anything.
# Each day has a third of the options that differ, and half of the files.
. "$HERE/lib.sh"
say_cover
printf '{"prompt":"JULIET:","max_tokens":4}\n' >"$work/in"
usual=(generate --model "$model" --in "$work/in")

# expect CODE "words|of the message" FIRST RANK... -- SECOND RANK...: one message, soon, and nothing on stdout.
expect() {
  local code=$1 words=$2 first=()
  shift 2
  while [[ $1 != -- ]]; do first+=("$1") && shift; done
  say "$code: $words"
  timeout 30 $MPIRUN -n 1 "${first[@]}" : -n 2 "${@:2}" </dev/null >"$work/out" 2>"$work/err"
  refused $? "$code" "$words" "${first[*]} : ${*:2}"
}

differ() { [[ ${fixed:-} ]] || today 3 || return 0; expect 65 "$1 (rank 1 on $(hostname)" "$MANIPLE" "${usual[@]}" ${2:-} -- "$MANIPLE" "${usual[@]}" ${3:-}; }
fixed=yes differ "given --dtype fp32, but rank 0 --dtype auto" "" "--dtype fp32"
differ "given --dtype auto, but rank 0 --dtype fp32" "--dtype fp32"
differ "given --tp 1, but rank 0 --tp 3" "--tp 3"
differ "given --block-size 16, but rank 0 --block-size 256" "" "--block-size 16"
differ "given --eager, but rank 0 no --eager" "" --eager
expect 65 "the command doctor, but rank 0 the command generate (rank 1" "$MANIPLE" "${usual[@]}" -- "$MANIPLE" doctor --model "$model"
expect 64 "unknown option --tpp (rank 1" "$MANIPLE" "${usual[@]}" -- "$MANIPLE" "${usual[@]}" --tpp 2
expect 64 "unknown option --tpp" "$MANIPLE" "${usual[@]}" --tpp 2 -- "$MANIPLE" "${usual[@]}"
say "threads are a rank's own affair"
$MPIRUN -n 1 "$MANIPLE" "${usual[@]}" --threads 1 : -n 1 "$MANIPLE" "${usual[@]}" --threads 2 >"$work/out" 2>"$work/err" || bad "$(cat "$work/err")"

# Each rank in its own folder, as on nodes with local disks; `local` is a path to both folders.
mkdir -p "$work"/{first,second}/local
cp "$model"/* "$work/first/local"
cp "$model"/* "$work/second/local"
copies() {
  today 2 || return 0
  expect 65 "$1|local/model.safetensors is not the file that rank 0 read|(rank 1 on $(hostname)" --wdir "$work/first" "$MANIPLE" \
    generate --model local --in "$work/in" --tp "$2" -- --wdir "$work/second" "$MANIPLE" generate --model local --in "$work/in" --tp "$2"
}
stored=$work/second/local/model.safetensors
header=$(($(od -An -t u8 -N 8 "$stored") + 8))
cp "$stored" "$work/stored"
{ head -c "$header" "$work/stored"; tail -c "+$((header + 1))" "$work/stored" | LC_ALL=C tr '\001-\177' '\002-\177\001'; } >"$stored"
copies "other values" 1
{ head -c "$header" "$work/stored" | LC_ALL=C sed 's/"BF16"/"F16" /'; tail -c "+$((header + 1))" "$work/stored"; } >"$stored"
copies "other tensors" 1
head -c 5000000 "$work/stored" >"$stored"
copies "5000000 bytes, there $(stat -c %s "$work/stored")" 1
rm "$stored"
expect 65 "cannot open local/model.safetensors|(rank 1" --wdir "$work/first" "$MANIPLE" generate --model local --in "$work/in" -- \
  --wdir "$work/second" "$MANIPLE" generate --model local --in "$work/in"
finish
