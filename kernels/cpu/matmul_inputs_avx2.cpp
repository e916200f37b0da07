#include <kernels/cpu/matmul_inputs.inl>

maniple::cpu::InputKernels maniple::cpu::input_kernels_avx2(bool bf16) { return input_kernels(bf16); }
