// A matrix of codes in the device's memory, as the kernels take it, and what it says.
#pragma once

#include <emulation/device_test.hpp>
#include <kernels/cuda/codes.hpp>
#include <support/random_tensors.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

namespace maniple::testing {

struct CodeLayout {
  int rows, columns;
  int bits;
  bool floating = false;  // e4m3, or e2m1 of 4 bits
  bool zeros = false;     // of its own for each group
  int group = 0;          // 0: a row has one scale, which elements do not hold, but for e2m1
  int first = 0;          // place of column 0 in its group
};

class MadeCodes {
 public:
  // code_at(row, column) gives a code in its last bits.
  template <typename CodeAt>
  MadeCodes(Device& device, const CodeLayout& layout, CodeAt code_at) : layout_(layout) {
    const auto row_bytes = static_cast<size_t>((layout.columns * layout.bits + 127) / 128 * 16);
    std::vector<uint8_t> codes(static_cast<size_t>(layout.rows) * row_bytes);
    for (int row = 0; row < layout.rows; ++row)
      for (int column = 0; column < layout.columns; ++column)
        codes[static_cast<size_t>(row) * row_bytes + static_cast<size_t>(column * layout.bits / 8)] |=
            static_cast<uint8_t>((code_at(row, column) & ((1 << layout.bits) - 1))
                                 << column * layout.bits % 8);
    if (layout.bits == 8 && !layout.floating)
      for (uint8_t& code : codes) code ^= 128;
    for (uint64_t i = 0; i < static_cast<uint64_t>(layout.rows * groups()); ++i) {
      scales_.push_back(e2m1() ? std::ldexp(1.0f, -static_cast<int>(5 + hashed(i) % 4))
                               : 0.01f + 0.005f * uniform(7, i));
      zeros_.push_back(layout.zeros ? static_cast<uint8_t>(hashed(i + 99) % (1U << layout.bits))
                                    : common_zero());
    }
    codes_there_ = uploaded(device, codes);
    const std::vector<PowerScale> powers(scales_.begin(), scales_.end());
    scales_there_ = e2m1() ? uploaded(device, powers) : uploaded(device, scales_);
    zeros_there_ = uploaded(device, zeros_);
    matrix_ = {data<uint8_t>(codes_there_),
               scales_there_.view().data,
               layout.zeros ? data<uint8_t>(zeros_there_) : nullptr,
               layout.bits,
               layout.floating,
               e2m1() || groups() > 1,
               e2m1() ? DType::e8m0 : DType::fp32,
               common_zero(),
               static_cast<int>(row_bytes),
               layout.columns,
               layout.group > 0 ? layout.group : 1 << 30,
               groups(),
               layout.first,
               1};
  }

  const cuda::CodeMatrix& matrix() const { return matrix_; }
  float scale(int row, int column) const { return scales_[place(row, column)]; }
  uint8_t zero(int row, int column) const { return zeros_[place(row, column)]; }

 private:
  int groups() const {
    return layout_.group > 0 ? (layout_.first + layout_.columns - 1) / layout_.group + 1 : 1;
  }
  bool e2m1() const { return layout_.floating && layout_.bits == 4; }
  uint8_t common_zero() const { return static_cast<uint8_t>(layout_.floating ? 0 : 1 << (layout_.bits - 1)); }
  size_t place(int row, int column) const {
    return static_cast<size_t>(row * groups() +
                               (layout_.group > 0 ? (layout_.first + column) / layout_.group : 0));
  }

  CodeLayout layout_;
  std::vector<float> scales_;
  std::vector<uint8_t> zeros_;
  Tensor codes_there_, scales_there_, zeros_there_;
  cuda::CodeMatrix matrix_{};
};

}  // namespace maniple::testing
