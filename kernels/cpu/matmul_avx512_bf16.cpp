#include <immintrin.h>

#include <kernels/cpu/matmul_vector.inl>

namespace maniple::cpu {
namespace {

// Dot products of bf16 pairs.
struct Bf16Pairs {
  using Sum = __m512;
  using Weight = __m512i;
  using Activation = __m512i;
  static constexpr int lanes = 16, registers = 24;

  static Sum zero() { return _mm512_setzero_ps(); }
  static void store(float* to, Sum sum) { _mm512_storeu_ps(to, sum); }
  static Weight weight(const uint32_t* units) { return _mm512_loadu_si512(units); }
  static Activation activation(const uint32_t* unit) { return _mm512_set1_epi32(static_cast<int>(*unit)); }
  static Sum dot(Sum sum, Weight w, Activation x) { return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x); }
};

}  // namespace

void matmul_bf16_avx512_bf16(const MatmulBlock& block) { multiply_block<VectorKernel<Bf16Pairs, 12>>(block); }

}  // namespace maniple::cpu
