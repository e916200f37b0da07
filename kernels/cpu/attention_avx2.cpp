#include <kernels/cpu/attention_kernel.inl>

maniple::cpu::AttentionKernel maniple::cpu::attention_kernel_avx2(bool bf16) {
  return attention_kernel(bf16);
}
