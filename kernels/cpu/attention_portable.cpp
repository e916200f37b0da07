#include <kernels/cpu/attention_kernel.inl>

maniple::cpu::AttentionKernel maniple::cpu::attention_kernel_portable(bool bf16) {
  return attention_kernel(bf16);
}
