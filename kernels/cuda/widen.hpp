// Codes as 16-bit elements, sixteen bytes at a time, in few instructions: they, not memory, would be the limit. The bits are those of
// the conversions through fp32.
#pragma once

#include <device/primitives.hpp>
#include <kernels/tensor/dtype.hpp>

#include <bit>
#include <type_traits>

namespace maniple::cuda {

// Eight elements of T, two in a word.
using Eight = device::Vector<uint32_t>;

// Moves the elements down by one and appends another.
template <typename T>
__device__ void append(Eight& elements, float element) {
  for (int i = 0; i < 3; ++i) elements.values[i] = elements.values[i] >> 16 | elements.values[i + 1] << 16;
  elements.values[3] = elements.values[3] >> 16 | device::packed_pair<T>(0, element);
}

// The word of sixteen bytes that holds a byte. Registers have no address, so none is computed.
__device__ inline uint32_t word_of(const device::Vector<uint32_t>& chunk, int byte) {
  const uint32_t low = byte & 4 ? chunk.values[1] : chunk.values[0],
                 high = byte & 4 ? chunk.values[3] : chunk.values[2];
  return byte & 8 ? high : low;
}

// Whether one of sixteen e4m3 codes is NaN. No byte carries into the next: both numbers are below 128.
__device__ inline bool holds_nan(const device::Vector<uint32_t>& codes) {
  uint32_t other = 0x80808080u;  // the highest bit of each byte: it is no NaN in any word
  for (const uint32_t word : codes.values) other &= ((word & 0x7f7f7f7fu) ^ 0x7f7f7f7fu) + 0x7f7f7f7fu;
  return other != 0x80808080u;
}

// Codes `first` and first + 1 of a word, no NaN. Their bits, moved to where T has its exponent, are the number at another exponent.
template <typename T>
__device__ uint32_t two_e4m3(uint32_t word, int first) {
  constexpr bool brain = std::is_same_v<T, device::bf16>;
  const uint32_t two = device::permute_bytes(word, 0, first == 0 ? 0x1404 : 0x3424);  // in bytes 1 and 3
  const uint32_t moved = brain ? two >> 4 & 0x07f007f0u : two >> 1 & 0x3f803f80u;
  return device::multiply_pairs<T>(moved | (two & 0x80008000u),
                                   brain ? 0x7b807b80u : 0x5c005c00u);  // 2^120, 2^8
}

// Calls store(i, the i-th eight elements) for sixteen e4m3 codes.
template <typename T, typename F>
__device__ void widen_e4m3(const device::Vector<uint32_t>& codes, F store) {
  if (holds_nan(codes)) {
    Eight eight{};
    DEVICE_ROLLED for (int place = 0; place < 16; ++place) {
      Float8 code;
      code.bits = static_cast<uint8_t>(word_of(codes, place) >> place % 4 * 8);
      append<T>(eight, static_cast<float>(code));
      if (place % 8 == 7) store(place / 8, eight);
    }
    return;
  }
  for (int half = 0; half < 2; ++half) {
    Eight eight;
    for (int pair = 0; pair < 4; ++pair)
      eight.values[pair] = two_e4m3<T>(codes.values[2 * half + pair / 2], pair % 2 * 2);
    store(half, eight);
  }
}

}  // namespace maniple::cuda
