#include <kernels/cpu/path_kernels.hpp>

namespace maniple::cpu {
namespace {

// All families except the matmul. bf16: the kernels for bf16, else for fp32.
struct KernelFamilies {
  InputKernels (*inputs)(bool bf16);
  RowKernels (*rows)(bool bf16);
  AttentionKernel (*attention)(bool bf16);
  RotaryKernel (*rotary)(bool bf16);
  SamplingKernels (*sampling)();
};

// A matmul, and the same of codes.
struct Products {
  PackedMatmul dense;
  CodeKernels codes;
};

PathKernels make_path_kernels(const Products& bf16, const Products& fp32, const PackedCodes& integers,
                              const KernelFamilies& of) {
  return {{bf16.dense, bf16.codes, of.inputs(true), of.rows(true), of.attention(true), of.rotary(true)},
          {fp32.dense, fp32.codes, of.inputs(false), of.rows(false), of.attention(false), of.rotary(false)},
          integers,
          of.sampling()};
}

}  // namespace

PathKernels kernels_of(CpuPath path) {
  constexpr PanelLayout fp32_columns{1, 1, 32}, bf16_pairs{2, 1, 32}, int8_words{4, 1, 32};
#ifdef __x86_64__
  constexpr PanelLayout amx_pairs{2, 16, 16}, amx_words{4, 16, 16};
  const Products fp32_avx512{{matmul_fp32_avx512, 12, 1, fp32_columns, fp32_columns}, code_kernels_avx512()};
  KernelFamilies avx512{input_kernels_avx512, row_kernels_avx512, attention_kernel_avx512,
                        rotary_kernel_avx512, sampling_kernels_avx512};
  switch (path) {
    case CpuPath::amx:  // processors with tiles run fp32 FMA faster than bf16 dot products
      avx512.attention = attention_kernel_amx;
      return make_path_kernels({{matmul_bf16_amx, 32, 16, amx_pairs, amx_pairs}, code_kernels_bf16_amx()},
                               fp32_avx512, {matmul_integers_amx, 32, 16, amx_words, amx_words}, avx512);
    case CpuPath::avx512_bf16:
      avx512.attention = attention_kernel_avx512_bf16;
      return make_path_kernels(
          {{matmul_bf16_avx512_bf16, 12, 1, bf16_pairs, bf16_pairs}, code_kernels_bf16_avx512_bf16()},
          fp32_avx512, {matmul_integers_avx512_bf16, 12, 1, int8_words, int8_words}, avx512);
    case CpuPath::avx512:
      return make_path_kernels({{matmul_bf16_avx512, 12, 1, bf16_pairs, fp32_columns}, code_kernels_avx512()},
                               fp32_avx512, {matmul_integers_avx512, 12, 1, int8_words, int8_words}, avx512);
    case CpuPath::avx2:
      return make_path_kernels({{matmul_bf16_avx2, 6, 1, bf16_pairs, fp32_columns}, code_kernels_avx2()},
                               {{matmul_fp32_avx2, 6, 1, fp32_columns, fp32_columns}, code_kernels_avx2()},
                               {matmul_integers_avx2, 4, 1, int8_words, int8_words},
                               {input_kernels_avx2, row_kernels_avx2, attention_kernel_avx2,
                                rotary_kernel_avx2, sampling_kernels_avx2});
    case CpuPath::portable:
    case CpuPath::automatic:
      break;
  }
#endif
  require(path == CpuPath::portable, "the instruction path is chosen before its kernels");
  return make_path_kernels(
      {{matmul_bf16_portable, 4, 1, bf16_pairs, fp32_columns}, code_kernels_portable()},
      {{matmul_fp32_portable, 4, 1, fp32_columns, fp32_columns}, code_kernels_portable()},
      {matmul_integers_portable, 4, 1, int8_words, int8_words},
      {input_kernels_portable, row_kernels_portable, attention_kernel_portable, rotary_kernel_portable,
       sampling_kernels_portable});
}

}  // namespace maniple::cpu
