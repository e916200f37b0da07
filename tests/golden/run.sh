#!/usr/bin/env bash
# Models x grids x instruction paths x types x batching: each run has the bytes of one rank on that path, and in fp32 the golden tokens.
#   tests/golden/run.sh [--cover SEED] [MODEL_DIR...]
# Without --cover the whole product (half an hour). With it some hundred runs, in which every two values of two factors meet; of two factors
# with many values (models and grids) half of the pairs on one of two days.
here=$(cd "$(dirname "$0")" && pwd)
seed=''
[[ ${1:-} != --cover ]] || { seed=${MANIPLE_SEED:-$2} && shift 2; }
MANIPLE=$(realpath "${MANIPLE:-$here/../../build/release/maniple}")
DATA=${DATA:-$here/../data}
MPIRUN=${MPIRUN:-mpirun --oversubscribe --allow-run-as-root --bind-to none --mca btl self,vader --mca mpi_yield_when_idle 1}
. "$here/../end_to_end/lib.sh"

models=("$@")
((${#models[@]} > 0)) || mapfile -t models < <(printf '%s\n' "$DATA"/models/*/config.json | xargs -n 1 dirname |
  awk -v seed="$seed" 'seed == "" || !/\/q-/ || ++quantised % 2 == seed % 2') # a cover takes half of the quantised ones
paths=$("$MANIPLE" --version | sed -n 's/^CPU paths: *//p' | sed 's/(.*//; s/,//g')

# A factor a line: its name, its values. "-" is the default.
factors() {
  echo "model ${models[*]}"
  echo "grid 1x1x1 2x1x1 3x1x1 4x1x1 8x1x1 1x1x2 2x1x2 1x1x4 4x1x2 1x2x1 1x3x1 2x2x1 2x2x2"
  echo "experts - one all" # of --tp: by their number, 1, as many
  echo "path $paths"
  echo "type fp32 bf16"
  echo "blocks - 16 cp2 cp4"
  echo "batching - chunks alone"
  echo "files - packed"
}

# All combinations, or greedily those that bring most new pairs, of 200 drawn ones each time.
combinations() {
  factors | awk -v seed="$seed" '
    { values[NR] = NF - 1; for (i = 2; i <= NF; i++) value[NR, i - 1] = $i }
    function print_pick(f) { for (f = 1; f <= NR; f++) printf "%s%s", value[f, pick[f]], f < NR ? " " : "\n" }
    function whole(f, i) { if (f > NR) { print_pick(); return } for (i = 1; i <= values[f]; i++) { pick[f] = i; whole(f + 1) } }
    function news(f, g, n) {
      n = 0
      for (f = 1; f <= NR; f++) for (g = f + 1; g <= NR; g++) n += !((f, pick[f], g, pick[g]) in met)
      return n
    }
    function wanted(f, g, a, b) { return values[f] * values[g] <= 60 || (a + b + int(seed / 2)) % 2 == 0 }
    END {
      if (seed == "") { whole(1); exit }
      srand(seed)
      for (f = 1; f <= NR; f++) for (g = f + 1; g <= NR; g++)
        for (a = 1; a <= values[f]; a++) for (b = 1; b <= values[g]; b++)
          if (wanted(f, g, a, b)) left++; else met[f, a, g, b] = 1
      while (left > 0) {
        most = 0
        for (drawn = 0; drawn < 200; drawn++) {
          for (f = 1; f <= NR; f++) pick[f] = 1 + int(rand() * values[f])
          n = news()
          if (n > most) { most = n; for (f = 1; f <= NR; f++) best[f] = pick[f] }
        }
        if (most == 0) continue
        for (f = 1; f <= NR; f++) pick[f] = best[f]
        for (f = 1; f <= NR; f++) for (g = f + 1; g <= NR; g++) met[f, pick[f], g, pick[g]] = 1
        left -= most
        print_pick()
      }
    }'
}

# generate_on RANKS NAME options...: results in $work/NAME.
generate_on() {
  local ranks=$1 name=$2
  shift 2
  on "$ranks" generate --in "$work/requests" --out "$work/$name" --overwrite "$@" 2>"$work/err" ||
    { bad "$ranks ranks, $*: exit code $?: $(cat "$work/err")" && return 1; }
}

# reference MODEL PATH TYPE: one rank's results, made once, in $work/$reference.
reference() {
  reference=$(tr -c 'a-z0-9\n' _ <<<"${1%/}.$2.$3")
  [[ -e $work/$reference ]] && return
  generate_on 1 "$reference" --model "$1" --cpu-path "$2" --dtype "$3" --threads 1 || return
  [[ $3 != fp32 ]] || sed -E 's/.*"tokens":(\[[0-9,]*\]).*/\1/' "$work/$reference" | cmp - "$work/expected" ||
    bad "$1, path $2: other tokens than the golden ones"
}

# packed MODEL: one file of it, made once, in $packed.
packed() {
  packed=$work/$(basename "$1").h5
  [[ -e $packed ]] || "$MANIPLE" convert "$1" "$packed" 2>"$work/err" || { bad "convert $1: $(cat "$work/err")" && return 1; }
}

runs=0
while read -r model grid experts path type blocks batching files; do
  IFS=x read -r tensor stages data <<<"$grid"
  heads=$(sed -n 's/.*"num_attention_heads": *\([0-9]*\).*/\1/p' "$model/config.json")
  ((heads % tensor == 0)) || continue
  "$(dirname "$MANIPLE")/golden_requests" "$model" "$work/expected" >"$work/requests" || bad "$model: no golden requests"
  reference "$model" "$path" "$type" || continue
  layers=$(sed -n 's/.*"num_hidden_layers": *\([0-9]*\).*/\1/p' "$model/config.json")
  if grep -q '"weight_block_size"' "$model/config.json"; then # of 128 inputs: ranks that would cut them are refused
    head=$(sed -n 's/.*"head_dim": *\([0-9]*\).*/\1/p' "$model/config.json")
    width=$(sed -n 's/.*"moe_intermediate_size": *\([0-9]*\).*/\1/p' "$model/config.json")
    ((heads * head / 128 % tensor == 0)) || continue
    [[ $experts != one || -z $width ]] || ((width / 128 % tensor == 0)) || continue
  fi
  ((layers >= stages)) || continue
  packed=$model
  [[ $files != packed ]] || packed "$model" || continue
  options=(--model "$packed" --tp "$tensor" --pp "$stages" --cpu-path "$path" --dtype "$type")
  if grep -qE '"num_(local_)?experts"' "$model/config.json"; then
    case $experts in
      one) options+=(--ep 1) ;;
      all) options+=(--ep "$tensor") ;;
    esac
  fi
  case $blocks in
    cp*)
      kv=$(sed -n 's/.*"num_key_value_heads": *\([0-9]*\).*/\1/p' "$model/config.json")
      ((tensor % (kv * ${blocks#cp}) == 0)) || continue
      options+=(--cp "${blocks#cp}")
      ;;
    [0-9]*) options+=(--block-size "$blocks") ;;
  esac
  case $batching in
    chunks) options+=(--max-num-seqs 3 --max-num-batched-tokens 48) ;;
    alone) options+=(--max-num-seqs 1) ;;
  esac
  generate_on $((tensor * stages * data)) out "${options[@]}" || continue
  ((++runs))
  if grep -q 'reproducibility: batch' "$work/err"; then
    # Sums of another grouping: the same greedy tokens, not the same bits.
    [[ $type != fp32 ]] || sed -E 's/.*"tokens":(\[[0-9,]*\]).*/\1/' "$work/out" | cmp - "$work/expected" || bad "${options[*]}, data $data: not the golden tokens"
  else
    cmp "$work/out" "$work/$reference" || bad "${options[*]}, data $data: other bytes than one rank's"
  fi
done < <(combinations)
((runs > 10)) || bad "only $runs runs"
say "$runs runs${seed:+, cover of seed $seed}"
finish
