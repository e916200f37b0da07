#include <kernels/cpu/rotary_kernel.inl>

maniple::cpu::RotaryKernel maniple::cpu::rotary_kernel_avx512(bool bf16) { return rotary_kernel(bf16); }
