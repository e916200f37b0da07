// The widest vectors of the instruction set that the including file is compiled for, as compiler vector
// types: arithmetic operators work lane by lane. Only for kernel files. Everything has internal linkage: the
// linker cannot merge wide code into another path.
#pragma once

#include <cstdint>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace maniple::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX2__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif

using Floats [[gnu::vector_size(4 * lanes)]] = float;
using Words [[gnu::vector_size(4 * lanes)]] = uint32_t;
using Ints [[gnu::vector_size(4 * lanes)]] = int32_t;
using Halves [[gnu::vector_size(2 * lanes)]] = uint16_t;

template <typename Vector>
inline Vector load(const void* from) {
  Vector vector;
  __builtin_memcpy(&vector, from, sizeof vector);
  return vector;
}

template <typename Vector>
inline void store(void* to, Vector vector) {
  __builtin_memcpy(to, &vector, sizeof vector);
}

inline Floats broadcast(float value) { return value - Floats{}; }

// a * b + c; one rounding where the instruction exists, two on the portable path.
inline Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}

// Elements are float, or uint16_t for the bits of a bf16.
inline Floats load_elements(const float* from) { return load<Floats>(from); }
inline Floats load_elements(const uint16_t* from) {
  return (Floats)(__builtin_convertvector(load<Halves>(from), Words) << 16);
}

inline Ints load_bytes(const uint8_t* from) {
#if defined(__AVX512F__)
  return (Ints)_mm512_maskz_cvtepu8_epi32(0xffff, load<__m128i>(from));
#elif defined(__AVX2__)
  return (Ints)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
#else
  Ints wide;
  for (int c = 0; c < lanes; ++c) wide[c] = from[c];
  return wide;
#endif
}

inline void store_elements(float* to, Floats values) { store(to, values); }
// Rounds to nearest, ties to even; a NaN stays one.
inline void store_elements(uint16_t* to, Floats values) {
  const Words wide = (Words)values;
  const Words rounded = (wide + 0x7fff + ((wide >> 16) & 1)) >> 16;
  const Words nan = (wide >> 16) | 0x40;
  store(to, __builtin_convertvector(values == values ? rounded : nan, Halves));
}

// Lanes are added in halves: lane i with lane i + lanes / 2, and so on.
inline float sum_lanes(Floats values) {
#if defined(__AVX2__)
#if defined(__AVX512F__)  // through an array gcc 12 keeps the vectors in memory from the start
  const __m256 half = _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, (__m512)values, 0),
                                    _mm512_maskz_extractf32x8_ps(0xff, (__m512)values, 1));
#else
  const __m256 half = (__m256)values;
#endif
  __m128 sums = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  sums = _mm_add_ps(sums, _mm_movehl_ps(sums, sums));
  return _mm_cvtss_f32(_mm_add_ss(sums, _mm_movehdup_ps(sums)));
#else
  float lane[lanes];
  store(lane, values);
  for (int half = lanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
#endif
}

inline float max_lanes(Floats values) {
  float best = values[0];
  for (int i = 1; i < lanes; ++i) best = values[i] > best ? values[i] : best;
  return best;
}

// 2^x for x <= 0, relative error below 2e-7; exactly 1 for 0, and 0 below -126. A NaN stays one.
inline Floats exp2_nonpositive(Floats x) {
  const Floats shifter = broadcast(0x1.8p23f);  // leaves the integer nearest to x in the low bits
  const Floats shifted = x + shifter;
  const Floats f = x - (shifted - shifter);
  Floats power = broadcast(0x1.44138ap-13f);
  power = multiply_add(power, f, broadcast(0x1.5f089p-10f));
  power = multiply_add(power, f, broadcast(0x1.3b2a54p-7f));
  power = multiply_add(power, f, broadcast(0x1.c6af6cp-5f));
  power = multiply_add(power, f, broadcast(0x1.ebfbep-3f));
  power = multiply_add(power, f, broadcast(0x1.62e43p-1f));
  power = multiply_add(power, f, broadcast(1.0f));
  const Words scale = ((Words)shifted << 23) + 0x3f800000u;
  return x < -126.0f ? Floats{} : power * (Floats)scale;
}

}  // namespace
}  // namespace maniple::cpu
