// The specification of the sampling noise: a pure function
// of (seed, position, token id), the same on every backend.
#pragma once

#include <kernels/support/split_mix.hpp>

#include <bit>
#include <cmath>
#include <cstdint>

namespace maniple {

// The two keys of a sampled position.
struct NoiseKey {
  uint32_t first = 0;
  uint32_t second = 0;
};

constexpr NoiseKey noise_key(uint64_t seed, uint32_t position) {
  const uint64_t mixed = split_mix(split_mix(seed) ^ position);
  return {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
}

// A bijection of ids for each key: Wellons' lowbias32 twice, each keyed.
constexpr uint32_t mix_bits(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}
constexpr uint32_t noise_bits(NoiseKey key, uint32_t id) {
  return mix_bits(mix_bits(id ^ key.first) + key.second);
}

// Uniform in (0, 1), at most 1 - 2^-24. Steps are 2^-31 near zero, elsewhere those of fp32.
constexpr float noise_uniform(NoiseKey key, uint32_t id) {
  const float w = (static_cast<float>(static_cast<int32_t>(noise_bits(key, id) >> 1)) + 0.5f) * 0x1p-31f;
  return w < 0x1.fffffep-1f ? w : 0x1.fffffep-1f;
}

// Standard Gumbel: -log(E), E = -log(1 - w) exponential. In [-2.82, 22.19].
inline float gumbel_noise(NoiseKey key, uint32_t id) {
  return -std::log(-std::log1p(-noise_uniform(key, id)));
}

// No less than gumbel_noise, without logarithms: -log(E) <= -log(w), as E >= w, and -log2(w) <= 127 - bits of w / 2^23, as log2(1 + m) >= m
// below 1. The factor is log(2) / 2^23 and 0.00007 of it, more than all rounding of the noise.
constexpr float noise_ceiling(NoiseKey key, uint32_t id) {
  return static_cast<float>(0x3f800000 - std::bit_cast<int32_t>(noise_uniform(key, id))) * 0x1.63p-24f;
}

}  // namespace maniple
