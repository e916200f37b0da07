#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for a while. usage: tests/fuzz/run.sh [seconds per target, default 60] [target...]
# Exit code 1: an input crashed, hung, leaked or took too much memory. build/fuzz/findings keeps the input.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || targets=(chat_template_fuzz model_config_fuzz packed_index_fuzz quantization_fuzz requests_fuzz safetensors_fuzz step_codec_fuzz tokenizer_fuzz)

launch/install.sh clang libclang-rt-14-dev
launch/setup.sh fuzz fuzz

corpora=build/fuzz/corpora
findings=build/fuzz/findings
for target in "${targets[@]}"; do
  mkdir -p "$corpora/$target" "$findings/$target"
  [ ! -d "tests/fuzz/seeds/$target" ] || cp tests/fuzz/seeds/"$target"/* "$corpora/$target"
done
for file in tests/data/models/*/*config.json; do
  [ ! -d "$corpora/model_config_fuzz" ] || cp "$file" "$corpora/model_config_fuzz/$(basename "$(dirname "$file")")_$(basename "$file")"
done
for folder in tests/data/models/q-*; do # with experts, or none; no changes
  [[ $folder == */q-moe-* ]] && experts=8 || experts=0
  [ ! -d "$corpora/quantization_fuzz" ] || { printf $experts && python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["quantization_config"]), end="")' <"$folder/config.json"; } >"$corpora/quantization_fuzz/$(basename "$folder")"
done
[ ! -d "$corpora/chat_template_fuzz" ] || cp tests/data/chat/templates/*.jinja "$corpora/chat_template_fuzz"
[ ! -d "$corpora/step_codec_fuzz" ] || build/fuzz/step_codec_seeds "$corpora/step_codec_fuzz"

failed=()
for target in "${targets[@]}"; do
  echo "$target: $seconds s" >&2
  log=build/fuzz/$target.log
  if ! "build/fuzz/$target" "$corpora/$target" -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=512 \
    -print_final_stats=1 -artifact_prefix="$findings/$target/" >"$log" 2>&1; then
    failed+=("$target")
    tail -n 40 "$log" >&2
  fi
  grep -E 'number_of_executed_units|peak_rss_mb' "$log" >&2 || true
done
[ ${#failed[@]} = 0 ] || { echo "findings in: ${failed[*]}" >&2; exit 1; }
