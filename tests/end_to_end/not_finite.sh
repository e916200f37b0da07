# A weight that is NaN or infinite: loading tells of it, and the requests that meet it fail, no others. One rank and two, each type, drawn
# greedily and with filters.
. "$HERE/lib.sh"
say_cover
tiny=$DATA/models/tiny-qwen3
printf '%s\n' '{"id":"a","tokens":[7,2,3,4,5]}' '{"id":"b","tokens":[1,2,3,4,5,6]}' '{"id":"c","tokens":[7,7]}' '{"id":"d","tokens":[3]}' >"$work/in"

# damaged NAME DAMAGE: a copy of the model with one number replaced.
damaged() {
  mkdir "$work/$1"
  ln -s "$tiny/config.json" "$work/$1/"
  "$HELPER" "$tiny" "$work/$1" "$2" || bad "make_damaged_model $2"
}
# serve RANKS MODEL OPTION...: to $work/out and $work/err. One sequence at a time, so that each gets the blocks of the one before.
serve() {
  on "$1" generate --tp "$1" --model "$2" --in "$work/in" --max-tokens 6 --seed 1 --max-num-seqs 1 --kv-memory 64K "${@:3}" >"$work/out" 2>"$work/err"
}
ways=("--temperature 0" "--temperature 0.8" "--temperature 0.8 --top-k 5 --top-p 0.9" "--temperature 0 --logprobs 2" "--temperature 0.8 --kv-cache-dtype fp8")

# all_fail DAMAGE: every request meets the number.
all_fail() {
  local ranks way name=${1//[:.]/-} dtype
  damaged "$name" "$1"
  for ranks in 1 2; do
    for dtype in bf16 fp32; do
      for way in "${ways[@]}"; do
        today 4 || continue
        say "$1: $ranks ranks, $dtype, $way"
        # shellcheck disable=SC2086
        serve "$ranks" "$work/$name" --dtype "$dtype" $way
        local rc=$?
        ((rc == 1)) || bad "exit code $rc, not 1 ($1, $ranks ranks, $dtype, $way): $(cat "$work/err")"
        (($(grep -c 'is NaN or infinite.*--dtype fp32' "$work/out") == 4)) || bad "not four errors ($1, $ranks ranks, $dtype, $way): $(cat "$work/out")"
        grep -q "warning: 1 number among the weights is NaN or infinite: ${1:4:6}" "$work/err" || bad "no warning ($1): $(cat "$work/err")"
      done
    done
  done
}
all_fail nan:model.norm.weight:3
all_fail nan:model.layers.1.self_attn.q_proj.weight:9
all_fail inf:model.layers.0.mlp.up_proj.weight:77
all_fail nan:lm_head.weight:130

say "a number that some requests meet"
damaged embedding nan:model.embed_tokens.weight:$((7 * 64 + 5))
for ranks in 1 2; do
  for way in "${ways[@]}"; do
    # shellcheck disable=SC2086
    serve "$ranks" "$tiny" $way || bad "the whole model ended with $?"
    grep -E '"id":"(b|d)"' "$work/out" >"$work/expected"
    # shellcheck disable=SC2086
    serve "$ranks" "$work/embedding" $way
    rc=$?
    ((rc == 1)) || bad "exit code $rc, not 1 ($ranks ranks, $way)"
    grep -E '"id":"(b|d)"' "$work/out" | cmp -s - "$work/expected" || bad "other results of requests that meet no NaN ($ranks ranks, $way): $(cat "$work/out")"
    (($(grep -Ec '"id":"(a|c)","error":"a logit for position [52] ' "$work/out") == 2)) || bad "a request met a NaN and did not fail ($ranks ranks, $way): $(cat "$work/out")"
  done
done

say "doctor and a model that is never read"
printf '{"tokens":[1,2]}\n' >"$work/in"
serve 1 "$work/embedding" || bad "a NaN that is never read harms: $(cat "$work/err")"
finish
