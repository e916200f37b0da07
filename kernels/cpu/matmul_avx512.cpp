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

// bf16 widened to fp32: the lower half of a unit by a shift, the upper half by a mask.
struct Bf16 : Sums {
  struct Weight {
    __m512 even, odd;
  };
  using Activation = Weight;

  static Weight weight(const uint32_t* units) {
    const __m512i pairs = _mm512_loadu_si512(units);
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return {(__m512)((__v16su)pairs << 16), _mm512_castsi512_ps(_mm512_and_si512(pairs, upper))};
  }
  static __m512 widened(uint32_t x) {
    return _mm512_castsi512_ps(_mm512_maskz_set1_epi16(0xaaaaaaaau, static_cast<short>(x)));
  }
  static Activation activation(const uint32_t* unit) { return {widened(*unit), widened(*unit >> 16)}; }
  static Sum dot(Sum sum, Weight w, Activation x) {
    return _mm512_fmadd_ps(w.odd, x.odd, _mm512_fmadd_ps(w.even, x.even, sum));
  }
  static void store_weight(uint32_t* to, Weight w) {
    cpu::store(to, bf16_pairs((Floats)w.even, (Floats)w.odd));
  }
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

void matmul_bf16_avx512(const MatmulBlock& block) { multiply_block<VectorKernel<Bf16, 12>>(block); }
void matmul_fp32_avx512(const MatmulBlock& block) { multiply_block<VectorKernel<Fp32, 12>>(block); }
void matmul_integers_avx512(const CodeBlock& block) {
  multiply_codes<IntegerProducts<VectorKernel<Integers, 12>>>(block);
}
CodeKernels code_kernels_bf16_avx512() { return bf16_code_kernels<Bf16, 12>(); }
CodeKernels code_kernels_fp32_avx512() { return fp32_code_kernels<Fp32, 12>(); }

}  // namespace maniple::cpu
