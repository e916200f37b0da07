# The program on GPUs, or on one that all ranks share through the host's memory: golden text, graphs, and ranks that die or stand still.
. "$HERE/lib.sh"
nvidia-smi -L 2>/dev/null | grep -q GPU || { say "no GPU: nvidia-smi lists none"; exit 77; }
cuda=(--backend cuda --transport host)

golden_requests "$work/golden.jsonl" "$work/golden"
for grid in "1" "1 --eager" "2 --tp 2" "2 --tp 1" "4 --tp 4 --block-size 16" "4 --tp 2 --max-num-seqs 16 --max-num-batched-tokens 64"; do
  on ${grid%% *} generate "${cuda[@]}" ${grid#"${grid%% *}"} --model "$model" --in "$work/golden.jsonl" --temperature 0 --dtype fp32 >"$work/out" 2>"$work/err" ||
    bad "$grid: exit code: $(cat "$work/err")"
  sed 's/"finish_reason.*//' "$work/out" | cmp - "$work/golden" || bad "not the golden text on $grid"
done

for options in "" "--eager"; do
  on 1 generate "${cuda[@]}" $options --model "$model" --in "$HERE/prompts.jsonl" --seed 42 --max-tokens 24 >"$work/bf16$options" 2>"$work/err"
  (($? == 1)) || bad "bf16 $options: exit code: $(cat "$work/err")" # one of the requests is refused on purpose
done
cmp "$work/bf16" "$work/bf16--eager" || bad "graphs and eager steps gave other results"

((failures == 0)) || finish

printf '{"prompt":"ROMEO:\\n","max_tokens":4000,"ignore_eos":true}\n%.0s' {1..400} >"$work/endless"
decoding() { until_true 60 grep -q 'KV cache' "$work/$1.err" || bad "$1: not decoding after 60 s: $(cat "$work/$1.err")"; }
for signal in KILL STOP; do
  for rank in 0 1; do
    name=$signal$rank
    start "$name" 2 generate "${cuda[@]}" --model "$model" --tp 2 --in "$work/endless" --out "$work/$name"
    find_ranks "$job" 2 && decoding "$name" && sleep 2 && kill "-$signal" "${ranks[rank]}"
    until_true 60 all_gone "$job" "${ranks[@]}" || bad "$name: not ended after 60 s: $(cat "$work/$name.err")"
    kill -KILL "$job" 2>/dev/null
  done
done
finish
