#include <kernels/cpu/amx_tile.hpp>
#include <kernels/cpu/matmul_amx.inl>
#include <kernels/cpu/matmul_pairs.inl>

namespace maniple::cpu {

void matmul_bf16_amx(const MatmulBlock& block) { multiply_block<AmxKernel<AmxTiles>>(block); }
void matmul_integers_amx(const CodeBlock& block) {
  multiply_codes<IntegerProducts<AmxKernel<AmxTiles, true>>>(block);
}
CodeKernels code_kernels_bf16_amx() {
  return amx_code_kernels<AmxTiles, Int8Pairs, Float8Pairs, Int4Pairs, FourBitPairs<E2m1>>();
}

}  // namespace maniple::cpu
