#include <kernels/cpu/amx_tile.hpp>
#include <kernels/cpu/attention_amx.inl>

maniple::cpu::AttentionKernel maniple::cpu::attention_kernel_amx(bool bf16) {
  return bf16 ? attention_kernel_of_tiles<AmxTiles>() : attention_kernel(false);
}
