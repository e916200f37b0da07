#include <kernels/cpu/amx_tile.hpp>
#include <kernels/cpu/matmul_amx.inl>

namespace maniple::cpu {

void matmul_bf16_amx(const MatmulBlock& block) { multiply_block<AmxKernel<AmxTiles>>(block); }

}  // namespace maniple::cpu
