#include <immintrin.h>

#include <kernels/cpu/matmul_vector.inl>

namespace maniple::cpu {
namespace {

struct Sums {
  using Sum = __m512;
  static constexpr int lanes = 16, registers = 24;

  static Sum zero() { return _mm512_setzero_ps(); }
  static void store(float* to, Sum sum) { _mm512_storeu_ps(to, sum); }
};

struct Fp32 : Sums {
  using Weight = __m512;
  using Activation = __m512;

  static Weight weight(const uint32_t* units) { return _mm512_loadu_ps(units); }
  static Activation activation(const uint32_t* unit) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*unit)));
  }
  static Sum dot(Sum sum, Weight w, Activation x) { return _mm512_fmadd_ps(w, x, sum); }
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
};

}  // namespace

void matmul_bf16_avx512(const MatmulBlock& block) { multiply_block<VectorKernel<Bf16, 12>>(block); }
void matmul_fp32_avx512(const MatmulBlock& block) { multiply_block<VectorKernel<Fp32, 12>>(block); }

}  // namespace maniple::cpu
