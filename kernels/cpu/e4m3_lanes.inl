// e4m3 in the vectors of any instruction set.
#pragma once

#include <kernels/cpu/vector_lanes.hpp>

namespace maniple::cpu {
namespace {

// Of the code at bit `at` of each lane. Exponents move from bias 7 to 127. Subnormals get the exponent of the least normal number,
// which is taken off again: no operation meets a subnormal number.
inline Floats e4m3_values(Words words, int at) {
  constexpr uint32_t least_normal = 0x3c800000u;
  const Words code = words >> at, magnitude = (code & 0x7f) << 20, sign = (code & 0x80) << 24;
  const Floats subnormal = (Floats)(magnitude + least_normal) - (Floats)(Words{} + least_normal);
  const Words normal = magnitude == 0x07f00000u ? Words{} + 0x7fc00000u : magnitude + 0x3c000000u;
  return (Floats)((magnitude < 0x00800000u ? (Words)subnormal : normal) | sign);
}

// Of codes that are neither subnormal nor NaN.
inline Floats e4m3_normal_values(Words words, int at) {
  const Ints placed = (Ints)(words << (24 - at)) >> 4;
  return (Floats)(((Words)placed & 0x87f00000u) + 0x3c000000u);
}
// Of the four codes of each lane; zeros count as subnormal.
inline bool any_e4m3_subnormal(Words words) {
  const Words exponents = words & 0x78787878u;
#if defined(__AVX512BW__)
  return _mm512_testn_epi8_mask((__m512i)exponents, (__m512i)exponents) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_epi8(_mm256_cmpeq_epi8((__m256i)exponents, _mm256_setzero_si256())) != 0;
#else
  const Words zero_byte = (exponents - 0x01010101u) & ~exponents & 0x80808080u;
  uint32_t any = 0;
  for (int i = 0; i < lanes; ++i) any |= zero_byte[i];
  return any != 0;
#endif
}

// Of exact bf16 values.
inline Words bf16_pairs(Floats even, Floats odd) { return (Words)even >> 16 | ((Words)odd & 0xffff0000u); }

// A NaN becomes 0.
inline Floats clamped(Floats values, float limit) {
  values = values == values ? values : Floats{};
  values = values < limit ? values : broadcast(limit);
  return values > -limit ? values : broadcast(-limit);
}

// The nearest codes, ties to even; values beyond 448 become 448. A NaN stays one.
inline Words e4m3_codes(Floats values) {
  const Words bits = (Words)clamped(values, 448.0f), magnitude = bits & 0x7fffffffu;
  const Words normal = (magnitude - 0x3c000000u + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  const Words subnormal = (Words)((Floats)magnitude + 0x1p14f) - 0x46800000u;  // multiples of 2^-9
  const Words codes = (magnitude < 0x3c800000u ? subnormal : normal) | (bits >> 24 & 0x80u);
  return values == values ? codes : Words{} + 0x7fu;
}

}  // namespace
}  // namespace maniple::cpu
