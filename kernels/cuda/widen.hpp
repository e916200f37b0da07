// Codes as 16-bit elements, sixteen bytes at a time, in few instructions: they, not memory, would be the limit. The bits are those of
// the conversions through fp32.
#pragma once

#include <device/primitives.hpp>
#include <kernels/tensor/dtype.hpp>

#include <bit>

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

// The code at a byte of a word, no NaN. Its bits, moved to where fp32 has its exponent, are the number at another exponent. Not two at
// once in 16 bits: with such products an H200 took three times as long as for int8.
__device__ inline float e4m3_at(uint32_t word, int byte) {
  const auto code =
      static_cast<int32_t>(device::permute_bytes(word, 0, static_cast<uint32_t>(byte) << 12 | 0x444));
  return std::bit_cast<float>(static_cast<uint32_t>(code >> 4) & 0x87f00000u) * 0x1p120f;
}

// The e2m1 code in the last bits of `stored`, in the same way.
__device__ inline float e2m1_of(uint32_t stored) {
  const int32_t code = static_cast<int32_t>(stored << 28) >> 6;
  return std::bit_cast<float>(static_cast<uint32_t>(code) & 0x81c00000u) * 0x1p126f;
}

// Calls store(i, the i-th eight elements) for sixteen e4m3 codes; each element is of(number), rounded.
template <typename T, typename Of, typename F>
__device__ void widen_e4m3(const device::Vector<uint32_t>& codes, Of of, F store) {
  if (holds_nan(codes)) {
    Eight eight{};
    DEVICE_ROLLED for (int place = 0; place < 16; ++place) {
      const auto code = static_cast<uint8_t>(word_of(codes, place) >> place % 4 * 8);
      append<T>(eight, of(static_cast<float>(std::bit_cast<Float8>(code))));
      if (place % 8 == 7) store(place / 8, eight);
    }
    return;
  }
  for (int half = 0; half < 2; ++half) {
    Eight eight;
    for (int pair = 0; pair < 4; ++pair) {
      const uint32_t word = codes.values[2 * half + pair / 2];
      const int byte = pair % 2 * 2;
      eight.values[pair] = device::packed_pair<T>(of(e4m3_at(word, byte)), of(e4m3_at(word, byte + 1)));
    }
    store(half, eight);
  }
}

}  // namespace maniple::cuda
