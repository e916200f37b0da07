#include <kernels/cpu/elementwise_kernel.inl>

maniple::cpu::RowKernels maniple::cpu::row_kernels_portable(bool bf16) {
  return bf16 ? row_kernels<uint16_t>() : row_kernels<float>();
}
maniple::cpu::SamplingKernels maniple::cpu::sampling_kernels_portable() { return sampling_kernels(); }
