# The program answers lines as they arrive, and prints the text of a prompt while it generates it.
. "$HERE/lib.sh"

# begin RANKS options...: a job that follows its stdin. ask LINE: its next answer, before the next line is sent.
begin() {
  local ranks=$1 launcher=$MPIRUN\ -n\ $1
  shift
  ((ranks == 1)) && launcher=
  coproc job_pipes { exec $launcher "$MANIPLE" generate --model "$model" --follow --seed 42 --max-tokens 8 "$@" 2>"$work/err"; }
  job=$job_pipes_PID
  started+=("$job")
}
ask() {
  answer=
  printf '%s\n' "$1" >&"${job_pipes[1]}"
  read -t 60 -r answer <&"${job_pipes[0]}" || bad "no answer to $1: $(cat "$work/err")"
}
end_of() {  # CODE: closes the input, and waits
  local pipe=${job_pipes[1]}
  exec {pipe}>&-
  wait "$job"
  local rc=$?
  ((rc == $1)) || bad "exit code $rc, not $1: $(cat "$work/err")"
}

good=('{"id":"a","prompt":"ROMEO:"}' '{"prompt":"JULIET:"}' '{"id":7,"tokens":[5]}')
printf '%s\n' "${good[@]}" >"$work/in"
on 1 generate --model "$model" --in "$work/in" --seed 42 --max-tokens 8 --out "$work/expected" 2>"$work/err" || bad "$(cat "$work/err")"
for ranks in 1 2; do
  say "$ranks ranks: each line is answered before the next one comes"
  begin $ranks --in - --tp $ranks
  for line in "${good[@]}"; do
    ask "$line"
    printf '%s\n' "$answer"
  done >"$work/out"
  cmp "$work/expected" "$work/out" || bad "$ranks ranks: other results than those of a file"
  end_of 0
done

say "a bad line is answered, and the others go on; nothing ends a job that waits"
begin 2 --in - --deadline 9s
ask 'nonsense'
[[ $answer == '{"id":1,"error":"line 1: not valid JSON'* ]] || bad "nonsense: $answer"
sleep 8  # an input that hangs ends a job after 6.75 s
ask '{"id":"b","promt":"x"}'
[[ $answer == '{"id":"b","error":"line 2: unknown field'* ]] || bad "an unknown field: $answer"
ask '{"custom_id":"c","url":"/v1/nothing","body":{}}'
[[ $answer == *'"custom_id":"c","response":null,"error":{'*'/v1/nothing'* ]] || bad "a bad line of a batch: $answer"
ask "${good[0]}"
cmp <(head -1 "$work/expected") <(printf '%s\n' "$answer") || bad "behind bad lines: $answer"
end_of 1

say "a signal ends it while it waits"
for signal in INT:130 TERM:143; do
  begin 1 --in -
  ask "${good[0]}"
  kill -"${signal%:*}" "$job"
  wait "$job"
  rc=$?
  ((rc == ${signal#*:})) || bad "$signal: exit code $rc: $(cat "$work/err")"
  grep -q "stopped by SIG${signal%:*}" "$work/err" || bad "$signal: $(cat "$work/err")"
done

say "a FIFO, which may have no writer at first"
mkfifo "$work/fifo"
start fifo 1 generate --model "$model" --in "$work/fifo" --follow --seed 42 --max-tokens 8 --out "$work/answers"
until_true 20 grep -q 'KV cache' "$work/fifo.err" || bad "not serving: $(cat "$work/fifo.err")"
{
  cat "$work/in"
  until_true 20 cmp -s "$work/expected" "$work/answers" || bad "a FIFO: $(cat "$work/answers")"
} >"$work/fifo"
wait "$job" || bad "a FIFO: exit code $?: $(cat "$work/fifo.err")"

say "what has all its lines already is no pipe"
on 1 generate --model "$model" --in "$work/in" --follow 2>"$work/err"
(($? == 64)) || bad "a file with --follow: $(cat "$work/err")"
grep -q 'is for pipes' "$work/err" || bad "a file with --follow: $(cat "$work/err")"

# `script` asks for a pseudo-terminal; some roots have none.
if ! script -qec true /dev/null </dev/null >/dev/null 2>&1; then
  say "on a terminal: SKIPPED, no pseudo-terminals here (is /dev/pts mounted?)"
  finish
  exit 0
fi
say "on a terminal a prompt's text is that of a file"
prompt="'$MANIPLE' generate --prompt ROMEO: --seed 3"
bash -c "$prompt --model '$model' --max-tokens 60 2>/dev/null" >"$work/expected" || bad "a prompt"
SHELL=/bin/bash script -qec "$prompt --model '$model' --max-tokens 60 2>/dev/null" /dev/null </dev/null >"$work/out" || bad "on a terminal"
tr -d '\r' <"$work/out" | cmp - "$work/expected" || bad "on a terminal: another text"

say "it appears as it is generated, and nothing is between"
mkdir "$work/deep"
cp "$model/tokenizer.json" "$work/deep"
sed 's/"num_hidden_layers": 5/"num_hidden_layers": 20/' "$model/config.json" >"$work/deep/config.json"
slow="$prompt --model '$work/deep' --load random --backend reference --max-tokens 4000 --ignore-eos"
SHELL=/bin/bash script -qec "echo \$\$ >'$work/pid'; exec $slow" /dev/null </dev/null >"$work/out" &
terminal=$!
text_of() { sed '1,/KV cache/d' "$1"; }
has_text() { (($(text_of "$work/out" | wc -c) > 100)); }
until_true 60 has_text || bad "no text after 60 s: $(cat "$work/out")"
gone "$(cat "$work/pid")" && bad "it ended before it was looked at"
kill -INT "$(cat "$work/pid")"
wait "$terminal"
rc=$?
((rc == 130)) || bad "SIGINT: exit code $rc"
text_of "$work/out" | grep -q $'\x1b' && bad "the progress line is in the text"
grep -q '^maniple: stopped by SIGINT' "$work/out" || bad "an unfinished text does not end its line: $(cat "$work/out")"
finish
