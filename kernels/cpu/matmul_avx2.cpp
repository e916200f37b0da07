#include <immintrin.h>

#include <kernels/cpu/matmul_widen.inl>

namespace maniple::cpu {
namespace {

struct Sums {
  using Sum = __m256;
  static constexpr int lanes = 8;

  static Sum zero() { return _mm256_setzero_ps(); }
};

struct Fp32 : Sums {
  using Weight = __m256;
  using Activation = __m256;
  static constexpr int registers = 12;

  static Weight weight(const uint32_t* units) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(units));
  }
  static Activation activation(const uint32_t* unit) {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(unit));
  }
  static Sum dot(Sum sum, Weight w, Activation x) { return _mm256_fmadd_ps(w, x, sum); }
  static void store_weight(uint32_t* to, Floats weight) { cpu::store(to, weight); }
};

// Unsigned codes times signed ones, in pairs of 16 bits.
struct Integers {
  using Sum = __m256i;
  struct Weight {
    __m256i even, odd;
  };
  using Activation = Weight;
  static constexpr int lanes = 8, registers = 8;

  static Sum zero() { return _mm256_setzero_si256(); }
  static Weight weight(const uint32_t* units) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(units));
    return {_mm256_and_si256(codes, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(codes, 8)};
  }
  static Activation activation(const uint32_t* unit) {
    const __m256i codes = _mm256_set1_epi32(static_cast<int>(*unit));
    return {_mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 8), _mm256_srai_epi16(codes, 8)};
  }
  static Sum dot(Sum sum, Weight w, Activation x) {
    return _mm256_add_epi32(
        sum, _mm256_add_epi32(_mm256_madd_epi16(w.even, x.even), _mm256_madd_epi16(w.odd, x.odd)));
  }
};

}  // namespace

void matmul_bf16_avx2(const MatmulBlock& block) {
  multiply_block<VectorKernel<Fp32, 6, Bf16ToFloats>>(block);
}
void matmul_fp32_avx2(const MatmulBlock& block) { multiply_block<VectorKernel<Fp32, 6>>(block); }
void matmul_integers_avx2(const CodeBlock& block) {
  multiply_codes<IntegerProducts<VectorKernel<Integers, 4>>>(block);
}
CodeKernels code_kernels_avx2() { return code_kernels<Fp32, 6>(); }

}  // namespace maniple::cpu
