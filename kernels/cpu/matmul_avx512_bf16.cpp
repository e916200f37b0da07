#include <kernels/cpu/matmul_pairs.inl>

namespace maniple::cpu {
namespace {

// Unsigned codes times signed ones.
struct Integers {
  using Sum = Ints;  // of __m512i gcc 12 keeps some in memory
  using Weight = __m512i;
  using Activation = __m512i;
  static constexpr int lanes = 16, registers = 24;

  static Sum zero() { return Sum{}; }
  static Weight weight(const uint32_t* units) { return _mm512_loadu_si512(units); }
  static Activation activation(const uint32_t* unit) { return _mm512_set1_epi32(static_cast<int>(*unit)); }
  static Sum dot(Sum sum, Weight w, Activation x) { return (Sum)_mm512_dpbusd_epi32((__m512i)sum, w, x); }
};

template <typename Source>
constexpr CodeKernel with = multiply_codes<WidenedProducts<Bf16Pairs, 12, Source, 4>>;

void multiply_int4(const CodeBlock& block) {
  (block.zero_step ? with<Int4Pairs> : with<FourBitPairs<SymmetricInt4>>)(block);
}

}  // namespace

void matmul_bf16_avx512_bf16(const MatmulBlock& block) { multiply_block<VectorKernel<Bf16Pairs, 12>>(block); }
void matmul_integers_avx512_bf16(const CodeBlock& block) {
  multiply_codes<IntegerProducts<VectorKernel<Integers, 12>>>(block);
}
CodeKernels code_kernels_bf16_avx512_bf16() {
  return {with<Int8Pairs>, with<Float8Pairs>, multiply_int4, with<FourBitPairs<E2m1>>};
}

}  // namespace maniple::cpu
