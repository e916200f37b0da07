# Shared by the end-to-end tests: each drives the real program in a directory of its own.
# From ctest: MANIPLE (the program), MPIRUN (with its flags), DATA (tests/data), HELPER (make_damaged_model), STOPPER (stop_at_end), LATE (late_fence), RECORDER (make_record), PUBLISHER (publish_fp8), HERE (this folder).
set -uo pipefail

work=$(mktemp -d "${TMPDIR:-/tmp}/maniple-e2e.XXXXXX")
failures=0
model=$DATA/models/shakespeare

say() { printf '%s\n' "$*"; }

# Of many cases those of the day: MANIPLE_SEED=N takes those of day N, MANIPLE_WHOLE=yes all of them.
cover_seed=${MANIPLE_SEED:-$(date -u +%j)}
cover_seed=$((10#$cover_seed))
cover_turn=$cover_seed
# today OF: whether the next case is one of the day's, every OF-th of them. Within OF days each case is.
today() { [[ ${MANIPLE_WHOLE:-} == yes ]] || ((cover_turn++ % $1 == 0)); }
say_cover() { say "cover of MANIPLE_SEED=$cover_seed; all: MANIPLE_WHOLE=yes"; }
bad() {
  printf 'FAILED: %s\n' "$*" >&2
  failures=$((failures + 1))
}

# Ends the processes that a test started and left behind, by their numbers only.
started=()
clean_up() {
  for pid in "${started[@]}"; do
    kill -CONT "$pid" 2>/dev/null
    kill -KILL "$pid" 2>/dev/null
  done
  rm -rf "$work"
}
trap clean_up EXIT

finish() {
  ((failures == 0)) || { printf '%d failed\n' "$failures" >&2; exit 1; }
  say "all passed"
}

# refused RC CODE "words|that the message|holds" CONTEXT: the command that wrote $work/out and $work/err ended with RC. Checks that RC is CODE,
# and for one message with these words and nothing on stdout.
refused() {
  local word
  (($1 == $2)) || bad "exit code $1, not $2 ($4): $(cat "$work/err")"
  (($(grep -c 'maniple: error:' "$work/err") == 1)) || bad "not exactly one message ($4): $(cat "$work/err")"
  [[ -s $work/out ]] && bad "something went to stdout ($4): $(cat "$work/out")"
  while read -r word; do
    grep -Fq -- "$word" "$work/err" || bad "no \"$word\" in the message ($4): $(cat "$work/err")"
  done < <(tr '|' '\n' <<<"$3")
}

# reported "words|that stdout|holds" ARGUMENTS...: `report` ends with 0. Its output goes to $work/out and $work/err.
reported() {
  local words=$1 word
  shift
  "$MANIPLE" report "$@" >"$work/out" 2>"$work/err" || bad "report $* ended with $?: $(cat "$work/err")"
  while read -r word; do
    grep -Fq -- "$word" "$work/out" || bad "no \"$word\" from report $*: $(cat "$work/out")"
  done < <(tr '|' '\n' <<<"$words")
}

# on RANKS arguments...: the program on this many ranks; 1 is without mpirun.
on() {
  local ranks=$1
  shift
  if ((ranks == 1)); then "$MANIPLE" "$@" </dev/null; else $MPIRUN -n "$ranks" "$MANIPLE" "$@" </dev/null; fi
}

# start NAME RANKS arguments...: the same in the background; $job is the process to wait for, NAME.err its stderr.
start() {
  local name=$1 ranks=$2
  shift 2
  if ((ranks == 1)); then "$MANIPLE" "$@" </dev/null 2>"$work/$name.err" & else
    $MPIRUN -n "$ranks" "$MANIPLE" "$@" </dev/null 2>"$work/$name.err" &
  fi
  job=$!
  started+=("$job")
}

# until_true SECONDS command...: polls the command; fails after this time.
until_true() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || return 1
    sleep 0.1
  done
}

# A zombie process counts as gone.
gone() {
  local stat
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
  [[ ${stat##*) } == [ZX]* ]]
}
all_gone() {
  local pid
  for pid in "$@"; do gone "$pid" || return 1; done
}

# The ranks of the job that mpirun process $1 started, in rank order: they are its children.
ranks_of() {
  local file stat fields pid rank
  for file in /proc/[0-9]*/stat; do
    { read -r stat <"$file"; } 2>/dev/null || continue
    read -ra fields <<<"${stat##*) }"
    [[ ${fields[1]} == "$1" ]] || continue
    pid=${stat%% *}
    rank=$(tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')
    [[ -n $rank ]] && printf '%s %s\n' "$rank" "$pid"
  done | sort -n | sed 's/.* //'
}

# find_ranks JOB COUNT: waits for all ranks; $ranks holds their process numbers.
have_ranks() {
  mapfile -t ranks < <(ranks_of "$1")
  ((${#ranks[@]} == $2))
}
find_ranks() {
  until_true 20 have_ranks "$1" "$2" || { bad "the $2 ranks of the job did not start"; return 1; }
  started+=("${ranks[@]}")
}

# golden_requests REQUESTS EXPECTED: writes the demo model's golden prompts, and the beginnings of their results.
golden_requests() {
  awk -v expected="$2" '
    /^   "prompt": / { sub(/^ *"prompt": /, ""); sub(/,$/, ""); prompt = $0 }
    /^   "tokens": / { inside = 1; count = 0; tokens = ""; next }
    inside && /\]/ { inside = 0 }
    inside { gsub(/ /, ""); tokens = tokens $0; ++count }
    /^   "text": / {
      sub(/^ *"text": /, ""); sub(/,$/, "")
      printf "{\"id\":%d,\"prompt\":%s,\"max_tokens\":%d}\n", ++line, prompt, count
      printf "{\"id\":%d,\"text\":%s,\"tokens\":[%s],\n", line, $0, tokens >expected
    }' "$model/golden.json" >"$1"
  (($(wc -l <"$1") >= 10)) || bad "golden.json was not understood"
}

# done_of DIR: the number of finished requests in progress.json.
done_of() {
  local line=''
  { read -r line <"$1/progress.json"; } 2>/dev/null
  if [[ $line =~ \"done\":([0-9]+) ]]; then echo "${BASH_REMATCH[1]}"; else echo 0; fi
}
has_done() { (($(done_of "$1") >= $2)); }  # DIR COUNT
