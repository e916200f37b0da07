// Elements of a matrix of codes, on the device.
#pragma once

#include <device/primitives.hpp>
#include <kernels/cuda/codes.hpp>
#include <kernels/cuda/widen.hpp>

#include <bit>
#include <functional>

namespace maniple::cuda {

// Of a row and group.
struct GroupFactors {
  uint32_t zero;
  float scale;
};

__device__ inline float scale_of(const CodeMatrix& m, int64_t row, int group) {
  const int64_t i = row * m.groups + group;
  if (m.scale_type == DType::bf16) return static_cast<float>(static_cast<const device::bf16*>(m.scales)[i]);
  if (m.scale_type == DType::fp16) return static_cast<float>(static_cast<const device::fp16*>(m.scales)[i]);
  return static_cast<const float*>(m.scales)[i];
}
// Of e2m1 codes, whose elements always hold it.
__device__ inline float power_of(const CodeMatrix& m, int64_t row, int group) {
  return static_cast<float>(static_cast<const PowerScale*>(m.scales)[row * m.groups + group]);
}

// A smaller integer code in the last bits but `but` of 2^(23 - but): an exact number, from which one subtraction takes the power + zero.
constexpr uint32_t power_behind(int bits) { return 0x4b000000u - (static_cast<uint32_t>(bits) << 23); }
__device__ inline float in_last_bits(uint32_t code, int but = 0) {
  return std::bit_cast<float>(power_behind(but) | code << but);
}

template <int bits>
__device__ GroupFactors factors_of(const CodeMatrix& m, int64_t row, int group) {
  if (bits == 4 && m.floating) return {0, power_of(m, row, group)};
  const uint32_t zero = m.zeros ? m.zeros[row * m.groups + group] : m.common_zero;
  return {zero, m.scaled ? scale_of(m, row, group) : 1.0f};
}

// The last bits of `stored` are a code as it lies in memory.
template <int bits>
__device__ float element_of(const CodeMatrix& m, uint32_t stored, const GroupFactors& factors) {
  if (bits == 4 && m.floating) return e2m1_of(stored) * factors.scale;
  if (!m.floating)
    return (in_last_bits(bits == 4 ? stored & 15u : (stored & 255u) ^ 128u) - in_last_bits(factors.zero)) *
           factors.scale;
  return static_cast<float>(std::bit_cast<Float8>(static_cast<uint8_t>(stored))) * factors.scale;
}

// Finds the group of a column. Made once, outside of loops: it divides.
class ColumnGroups {
 public:
  ColumnGroups() = default;  // a single one
  __device__ explicit ColumnGroups(const CodeMatrix& m)
      : reciprocal_(0xffffffffu / static_cast<uint32_t>(m.group) + 1), first_(m.first), last_(m.groups - 1) {}
  // The last group takes what is behind the columns. Exact where place * group is below 2^32.
  __device__ int of(int column) const {
    const auto place = static_cast<uint32_t>(first_ + column);
    const auto group =
        static_cast<int>(reciprocal_ == 0 ? place : static_cast<uint64_t>(place) * reciprocal_ >> 32);
    return group < last_ ? group : last_;
  }

 private:
  uint32_t reciprocal_ = 0;  // 2^32 / group, rounded up; 0: groups of one column
  int first_ = 0, last_ = 0;
};

// Calls f(place, element) for the sixteen bytes of codes that begin at a column of a row, in whatever groups.
template <int bits, typename F>
__device__ void for_elements(const CodeMatrix& m, const ColumnGroups& groups, int64_t row, int column,
                             const device::Vector<uint32_t>& chunk, F f) {
  DEVICE_ROLLED for (int place = 0; place < 128 / bits; ++place) {
    const uint32_t stored = word_of(chunk, place * bits / 8) >> place * bits % 32;
    f(place, element_of<bits>(m, stored, factors_of<bits>(m, row, groups.of(column + place))));
  }
}

// The integer code at a place of sixteen bytes, in last bits but these: of a word's codes of 4 bits only the last three are moved.
constexpr int bits_behind(int bits, int place) { return bits == 8 ? 0 : place % 8 % 5 * 4; }
template <int bits>
__device__ float integer_at(const device::Vector<uint32_t>& chunk, int place) {
  const uint32_t word = chunk.values[place * bits / 32];
  if constexpr (bits == 8)
    return std::bit_cast<float>(device::permute_bytes(word ^ 0x80808080u, 0x4b000000u, 0x7540 | place % 4));
  const int behind = bits_behind(bits, place);
  return std::bit_cast<float>(
      device::masked_or(place % 8 < 5 ? word : word >> 20, 15u << behind, power_behind(behind)));
}

// Calls store(i, the i-th eight elements of T) for sixteen bytes of codes; value(place): of a code.
template <int bits, typename T, typename Value, typename F>
__device__ void store_elements(Value value, F store) {
  for (int eight = 0; eight < 16 / bits; ++eight) {
    Eight elements;
    for (int i = 0; i < 4; ++i)
      elements.values[i] = device::packed_pair<T>(value(8 * eight + 2 * i), value(8 * eight + 2 * i + 1));
    store(eight, elements);
  }
}

// Calls f(widen) for sixteen bytes of codes from a column on, in any rows. widen(row, chunk, store) calls store(i, the i-th eight
// elements of T). What depends on the format and the group alone is decided once.
template <int bits, typename T, typename F>
__device__ void with_widening(const CodeMatrix& m, const ColumnGroups& groups, int column, F f) {
  const int group = groups.of(column);
  if (groups.of(column + 128 / bits - 1) != group)
    return f([&](int64_t row, const device::Vector<uint32_t>& chunk, auto store) {
      Eight elements{};
      for_elements<bits>(m, groups, row, column, chunk, [&](int place, float element) {
        append<T>(elements, element);
        if (place % 8 == 7) store(place / 8, elements);
      });
    });
  if (bits == 8 && m.floating && !m.scaled)
    return f([](int64_t, const device::Vector<uint32_t>& chunk, auto store) {
      widen_e4m3<T>(chunk, std::identity{}, store);
    });
  if (bits == 8 && m.floating)
    return f([&](int64_t row, const device::Vector<uint32_t>& chunk, auto store) {
      const float scale = scale_of(m, row, group);
      widen_e4m3<T>(
          chunk, [scale](float number) { return number * scale; }, store);
    });
  if (bits == 4 && m.floating)
    return f([&](int64_t row, const device::Vector<uint32_t>& chunk, auto store) {
      const float scale = power_of(m, row, group);
      const auto value = [&](int place) { return e2m1_of(chunk.values[place / 8] >> place % 8 * 4) * scale; };
      store_elements<bits, T>(value, store);
    });
  f([&](int64_t row, const device::Vector<uint32_t>& chunk, auto store) {
    const GroupFactors factors = factors_of<bits>(m, row, group);
    const auto value = [&](int place) {
      const float zero = in_last_bits(factors.zero, bits_behind(bits, place));
      return (integer_at<bits>(chunk, place) - zero) * factors.scale;
    };
    store_elements<bits, T>(value, store);
  });
}

template <int bits>
__device__ inline float element_at(const CodeMatrix& m, const ColumnGroups& groups, int64_t row, int column) {
  const uint32_t byte = m.codes[row * m.row_bytes + column * bits / 8];
  return element_of<bits>(m, byte >> column * bits % 8, factors_of<bits>(m, row, groups.of(column)));
}

// The rest of a product. bits: of an element; codes may not hold their scale.
template <int bits>
__device__ float finished(const FinishArguments& a, float sum, int64_t row, int64_t column) {
  if (bits < 16 && !a.codes.scaled) {
    const float scale = scale_of(a.codes, column, 0);
    sum *= a.input_scales ? a.input_scales[row] * scale : scale;
  }
  return sum + (a.bias ? a.bias[column] : 0);
}

}  // namespace maniple::cuda
