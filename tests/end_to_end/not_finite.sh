# A weight that is NaN or infinite: loading tells of it, and the requests that meet it fail, no others. One rank and two, each type, drawn
# greedily and with filters.
. "$HERE/lib.sh"
say_cover
models=$DATA/models
tiny=$models/tiny-qwen3
printf '%s\n' '{"id":"a","tokens":[7,2,3,4,5]}' '{"id":"b","tokens":[1,2,3,4,5,6]}' '{"id":"c","tokens":[7,7]}' '{"id":"d","tokens":[3]}' >"$work/in"

# damaged NAME MODEL DAMAGE: a copy of the model with one number replaced.
damaged() {
  mkdir "$work/$1"
  ln -s "$models/$2/config.json" "$work/$1/"
  "$HELPER" "$models/$2" "$work/$1" "$3" || bad "make_damaged_model $2 $3"
}
# serve RANKS MODEL OPTION...: to $work/out and $work/err. One sequence at a time, so that each gets the blocks of the one before.
serve() {
  on "$1" generate --tp "$1" --model "$2" --in "$work/in" --max-tokens 6 --seed 1 --max-num-seqs 1 --block-size 16 --kv-memory 96K "${@:3}" >"$work/out" 2>"$work/err"
}
ways=("--temperature 0" "--temperature 0.8" "--temperature 0.8 --top-k 5 --top-p 0.9" "--temperature 0 --logprobs 2" "--temperature 0.8 --kv-cache-dtype fp8")
paths=()
for path in portable avx2 avx512 avx512_bf16 amx; do
  "$MANIPLE" generate --cpu-path $path --model "$tiny" --in "$work/in" --max-tokens 1 --quiet >/dev/null 2>&1 && paths+=("$path")
done
((${#paths[@]} > 0)) || bad "no path of the CPU serves $tiny"

# fails RANKS NAME DAMAGE OPTION...: four errors and one warning.
fails() {
  serve "$1" "$work/$2" "${@:4}"
  local rc=$?
  ((rc == 1)) || bad "exit code $rc, not 1 ($*): $(cat "$work/err")"
  (($(grep -c 'is NaN or infinite.*--dtype fp32' "$work/out") == 4)) || bad "not four errors ($*): $(cat "$work/out")"
  grep -q "warning: 1 number among the weights is NaN or infinite: ${3:4:-2}" "$work/err" || bad "no warning ($*): $(cat "$work/err")"
}
# all_fail MODEL DAMAGE WAY...: every request meets the number.
all_fail() {
  local ranks way path name=$1-${2//[:.]/-} dtype
  damaged "$name" "$1" "$2"
  for ranks in 1 2; do
    for dtype in bf16 fp32; do
      for path in "${paths[@]}"; do
        for way in "${@:3}"; do
          today 17 || continue
          say "$1, $2: $ranks ranks, $dtype, $path, $way"
          # shellcheck disable=SC2086
          fails "$ranks" "$name" "$2" --dtype "$dtype" --cpu-path "$path" $way
        done
      done
    done
  done
}
for damage in nan:model.norm.weight:3 nan:model.layers.1.self_attn.q_proj.weight:9 inf:model.layers.0.mlp.up_proj.weight:7 nan:lm_head.weight:5; do
  all_fail tiny-qwen3 $damage "${ways[@]}" "--temperature 0 --quantize int8" "--temperature 0 --quantize int4" "--temperature 0 --quantize fp8"
done
part=model.layers.0.self_attn
all_fail q-fp8-channel nan:$part.q_proj.weight:9 "${ways[0]}"
all_fail q-fp8-channel nan:$part.k_proj.weight_scale:9 "${ways[1]}"
all_fail q-fp8-block inf:$part.q_proj.weight_scale_inv:1 "${ways[0]}"
all_fail q-fp8-static-kv nan:$part.q_proj.weight_scale:0 "${ways[0]}"
all_fail q-fp8-static-kv nan:$part.q_proj.input_scale:0 "${ways[1]}"
all_fail q-fp8-static-kv inf:$part.k_scale:0 "${ways[4]}"
all_fail q-int8 inf:$part.k_proj.weight_scale:7 "${ways[0]}"
all_fail q-gptq nan:$part.k_proj.scales:7 "${ways[0]}"
all_fail q-awq inf:$part.q_proj.scales:7 "${ways[0]}"
all_fail q-w4a16 nan:$part.k_proj.weight_scale:7 "${ways[0]}"
all_fail tiny-qwen3-moe nan:model.layers.0.mlp.gate.weight:7 "${ways[0]}"

say "a number that some requests meet"
damaged embedding tiny-qwen3 nan:model.embed_tokens.weight:$((7 * 64 + 5))
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
