// Elements of a matrix of codes, on the device.
#pragma once

#include <device/primitives.hpp>
#include <kernels/cuda/codes.hpp>

#include <bit>

namespace maniple::cuda {

// Of a row and group. zero: the number that the code's bits become part of (below).
struct GroupFactors {
  float zero, scale;
};

__device__ inline float scale_of(const CodeMatrix& m, int64_t row, int group) {
  const int64_t i = row * m.groups + group;
  if (m.scale_type == DType::bf16) return static_cast<float>(static_cast<const device::bf16*>(m.scales)[i]);
  if (m.scale_type == DType::fp16) return static_cast<float>(static_cast<const device::fp16*>(m.scales)[i]);
  return static_cast<const float*>(m.scales)[i];
}

__device__ inline GroupFactors factors_of(const CodeMatrix& m, int64_t row, int group) {
  const int zero = m.zeros ? m.zeros[row * m.groups + group] : m.common_zero;
  return {static_cast<float>((1 << 23) + zero), m.scaled ? scale_of(m, row, group) : 1.0f};
}

// An integer code in the last bits of 2^23: an exact number, from which one subtraction takes 2^23 + zero.
__device__ inline float element_of(bool e4m3, uint32_t code, const GroupFactors& factors) {
  if (!e4m3) return (std::bit_cast<float>(0x4b000000u | code) - factors.zero) * factors.scale;
  Float8 number;
  number.bits = static_cast<uint8_t>(code);
  return static_cast<float>(number) * factors.scale;
}

// Calls store(i, values of the i-th eight elements) for the sixteen bytes of codes that begin at a column of a row.
template <int bits, typename F>
__device__ void widen_chunk(const CodeMatrix& m, int64_t row, int column,
                            const device::Vector<uint32_t>& chunk, F store) {
  const auto end_of = [&](int group) {  // the last group takes what is behind the columns
    return group + 1 < m.groups ? (group + 1) * m.group - m.first : 1 << 30;
  };
  int group = (m.first + column) / m.group;
  if (group >= m.groups) group = m.groups - 1;
  int left = end_of(group) - column;
  GroupFactors factors = factors_of(m, row, group);
  const bool e4m3 = bits == 8 && m.e4m3;
  for (int eight = 0; eight < 16 / bits; ++eight) {
    float values[8];
    for (int i = 0; i < 8; ++i, --left) {
      const int place = 8 * eight + i;
      if (left == 0) {
        factors = factors_of(m, row, ++group);
        left = end_of(group) - column - place;
      }
      values[i] = element_of(e4m3, chunk.values[place * bits / 32] >> place * bits % 32 & ((1u << bits) - 1),
                             factors);
    }
    store(eight, values);
  }
}

template <int bits>
__device__ inline float element_at(const CodeMatrix& m, int64_t row, int column) {
  const uint32_t byte = m.codes[row * m.row_bytes + column * bits / 8];
  return element_of(bits == 8 && m.e4m3, byte >> column * bits % 8 & ((1u << bits) - 1),
                    factors_of(m, row, (m.first + column) / m.group));
}

// The rest of a product where elements do not hold their scale.
__device__ inline float finished(const FinishArguments& a, float sum, int64_t row, int64_t column) {
  if (!a.codes.scaled) {
    const float scale = scale_of(a.codes, column, 0);
    sum *= a.input_scales ? a.input_scales[row] * scale : scale;
  }
  return sum + (a.bias ? a.bias[column] : 0);
}

}  // namespace maniple::cuda
