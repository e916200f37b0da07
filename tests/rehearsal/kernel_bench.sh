#!/usr/bin/env bash
# The benchmark of the kernels, at a 65536th of its sizes, prints rows of every kind.
#   kernel_bench.sh PROGRAM
set -euo pipefail
rows=$(STAND_IN_MIB=1024 KERNEL_BENCH_SHRINK=65536 "$1")
failed=0
while read -r least pattern; do
  (($(grep -cE "$pattern" <<<"$rows") >= least)) || { echo "fewer than $least rows with $pattern" >&2; failed=1; }
done <<'PATTERNS'
1 "read_all"
1 "copy"
1 "product"
1 "attention_decode"
1 "attention_decode_fp8"
3 "attention_decode_mixed"
3 "attention_decode_fp8_mixed"
1 "attention_prefill", "case": "mixed"
1 "skinny_gemm"
1 "skinny_gemm_gated"
1 "cublaslt", "m"
1 "dequant_gemm", "format": "int4"
1 "dequant_gemm", "format": "fp8"
1 "cublaslt", "codes": "int8".* "us"
1 "cublaslt", "codes": "fp8".* "us"
1 "cublaslt", "codes": "fp8 in blocks"
1 "experts gate_up", "format": "bf16"
1 "experts gate_up", "format": "fp8"
1 "experts down", "format": "int4"
1 "add_rms_norm"
3 "sample_top_p"
3 "sample_filtered"
2 "small kernels that start in turn, a node"
2 "small kernels, a node"
2 "graph launch, host, later"
1 "blocks", "of": "attention_decode", "observed"
1 "blocks", "of": "attention_decode_fp8", "observed"
1 "blocks", "of": "attention_prefill", "observed"
PATTERNS
exit $failed
