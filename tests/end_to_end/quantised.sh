# Quantised models: what --quantize makes is what is published, on every grid; what doctor and generate say of them.
. "$HERE/lib.sh"
say_cover

cat >"$work/texts" <<'END'
{"prompt":"ROMEO:\n","temperature":0,"logprobs":3}
{"prompt":"To be, or not to be","temperature":0.8,"logprobs":2}
END
cat >"$work/tokens" <<'END'
{"tokens":[1,2,3,300],"temperature":0,"logprobs":3}
{"tokens":[7,50,9,8,100,4],"temperature":0.8,"logprobs":2}
END

# results RANKS NAME MODEL options...: in $work/NAME.
results() {
  local ranks=$1 name=$2
  shift 2
  on "$ranks" generate --in "$input" --seed 42 --max-tokens 24 --threads 1 --out "$work/$name" --overwrite --model "$@" 2>"$work/err" ||
    bad "$ranks ranks, --model $*: exit code $?: $(cat "$work/err")"
}

for name in shakespeare tiny-qwen3-moe; do
  model=$DATA/models/$name
  "$PUBLISHER" "$model" "$work/$name.fp8" || bad "$name was not published"
  input=$work/texts
  [[ -e $model/tokenizer.json ]] || input=$work/tokens
  for dtype in bf16 fp32; do
    say "$name, $dtype: --quantize fp8 gives the bytes of the published model"
    results 1 plain "$model" --dtype $dtype
    results 1 published "$work/$name.fp8" --dtype $dtype
    grep -q 'weights: float-quantized, dynamic activations' "$work/err" || bad "what was published is not quantised: $(cat "$work/err")"
    cmp -s "$work/plain" "$work/published" && bad "$name: FP8 has no effect"
    for grid in 1 "2 --tp 2" "4 --tp 2 --pp 2" "4 --tp 4"; do
      today 3 || continue
      results ${grid%% *} rounded "$model" --dtype $dtype --quantize fp8 ${grid#"${grid%% *}"}
      cmp "$work/published" "$work/rounded" || bad "$name, $dtype, $grid: other bytes than the published model"
    done
    grep -q 'weights: quantised to fp8 while loading' "$work/err" || bad "--quantize has no effect: $(cat "$work/err")"
    results 2 rounded "$work/$name.fp8" --dtype $dtype --tp 2
    cmp "$work/published" "$work/rounded" || bad "$name, $dtype: two ranks give other bytes"
  done
done

say "packed models give the bytes of their directories"
input=$work/tokens
for name in q-int8 q-fp8-block; do
  "$MANIPLE" convert "$DATA/models/$name" "$work/$name.h5" 2>"$work/err" || bad "convert $name: $(cat "$work/err")"
  results 1 directory "$DATA/models/$name"
  for grid in 1 "2 --tp 2" "4 --tp 2"; do
    today 2 || continue
    results ${grid%% *} packed "$work/$name.h5" ${grid#"${grid%% *}"}
    cmp "$work/directory" "$work/packed" || bad "$name, $grid: other bytes than the directory"
  done
done

say "zero points that programs read in different ways: one warning"
for ranks in 1 2; do
  results $ranks out "$DATA/models/q-gptq-act" --tp $ranks --quiet
  (($(grep -c 'warning: zero points are asymmetric' "$work/err") == 1)) || bad "$ranks ranks: not one warning: $(cat "$work/err")"
  results $ranks out "$DATA/models/q-gptq" --tp $ranks --quiet
  [[ ! -s $work/err ]] || bad "$ranks ranks: a warning of symmetric zero points: $(cat "$work/err")"
done
on 2 doctor --quick --model "$DATA/models/q-gptq-act" >"$work/out" 2>&1 || bad "doctor: $(cat "$work/out")"
(($(grep -c '^warning: zero points are asymmetric' "$work/out") == 1)) || bad "doctor: not one warning: $(cat "$work/out")"

say "doctor asks for the scales that an FP8 KV cache needs, as generate does"
model=$work/no-scales
mkdir "$model"
ln -s "$DATA/models/q-fp8-channel/model.safetensors" "$model"
sed 's/"kv_cache_scheme": null/"kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"}/' "$DATA/models/q-fp8-channel/config.json" >"$model/config.json"
for command in "doctor --quick" "generate --in $input"; do
  for ranks in 1 2; do
    ((ranks == 1)) || today 2 || continue
    on $ranks $command --model "$model" >"$work/out" 2>"$work/err"
    refused $? 65 "lacks a scale of the KV cache: model.layers.0.self_attn.k_scale|kv-cache-dtype" "$ranks ranks, $command"
    on $ranks $command --model "$model" --kv-cache-dtype bf16 >"$work/out" 2>"$work/err" || bad "$ranks ranks, $command in bf16: $(cat "$work/err")"
  done
done

# not_of_config NAME SED-SCRIPT WORDS: a config that does not belong to the weights.
not_of_config() {
  mkdir "$work/$1.odd"
  ln -s "$DATA/models/$1/model.safetensors" "$work/$1.odd"
  sed "$2" "$DATA/models/$1/config.json" >"$work/$1.odd/config.json"
  for command in "doctor --quick" "generate --in $input"; do
    for ranks in 1 2; do
      ((ranks == 1)) || today 2 || continue
      on $ranks $command --model "$work/$1.odd" --tp $ranks >"$work/out" 2>"$work/err"
      refused $? 65 "$3" "$ranks ranks, $command"
    done
  done
}
say "what a list of the config leaves out, stored quantised"
not_of_config q-int8 's/"lm_head"/&, "re:.*0.self_attn.q"/' 'config.json leaves model.layers.0.self_attn.q_proj out of quantisation ("re:.*0.self_attn.q"), but it is stored quantised'
not_of_config q-gptq 's/"desc_act"/"dynamic": {"-:.*1.mlp.up_proj": {}}, &/' 'config.json leaves model.layers.1.mlp.up_proj out of quantisation ("-:.*1.mlp.up_proj"), but it is stored quantised'
finish
