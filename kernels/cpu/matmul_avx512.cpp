#include <immintrin.h>

#include <kernels/cpu/matmul_widen.inl>

namespace maniple::cpu {
namespace {

struct Sums {
  using Sum = __m512;
  static constexpr int lanes = 16, registers = 24;

  static Sum zero() { return _mm512_setzero_ps(); }
};

struct Fp32 : Sums {
  using Weight = __m512;
  using Activation = __m512;

  static Weight weight(const uint32_t* units) { return _mm512_loadu_ps(units); }
  static Activation activation(const uint32_t* unit) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*unit)));
  }
  static Sum dot(Sum sum, Weight w, Activation x) { return _mm512_fmadd_ps(w, x, sum); }
  static void store_weight(uint32_t* to, Floats weight) { cpu::store(to, weight); }
};

// Unsigned codes times signed ones, in pairs of 16 bits.
struct Integers {
  using Sum = Ints;
  struct Weight {
    __m512i even, odd;
  };
  using Activation = Weight;
  static constexpr int lanes = 16, registers = 24;

  static Sum zero() { return Sum{}; }
  static Weight weight(const uint32_t* units) {
    const __m512i codes = _mm512_loadu_si512(units), low = _mm512_set1_epi16(0xff);
    return {_mm512_and_si512(codes, low), (__m512i)((__v32hu)codes >> 8)};
  }
  static Activation activation(const uint32_t* unit) {
    const __m512i codes = _mm512_set1_epi32(static_cast<int>(*unit));
    return {(__m512i)((__v32hi)codes << 8 >> 8), (__m512i)((__v32hi)codes >> 8)};
  }
  static Sum dot(Sum sum, Weight w, Activation x) {
    return sum + ((Sum)_mm512_madd_epi16(w.even, x.even) + (Sum)_mm512_madd_epi16(w.odd, x.odd));
  }
};

}  // namespace

void matmul_bf16_avx512(const MatmulBlock& block) {
  multiply_block<VectorKernel<Fp32, 12, Bf16ToFloats>>(block);
}
void matmul_fp32_avx512(const MatmulBlock& block) { multiply_block<VectorKernel<Fp32, 12>>(block); }
void matmul_integers_avx512(const CodeBlock& block) {
  multiply_codes<IntegerProducts<VectorKernel<Integers, 12>>>(block);
}
CodeKernels code_kernels_avx512() { return code_kernels<Fp32, 12>(); }

}  // namespace maniple::cpu
