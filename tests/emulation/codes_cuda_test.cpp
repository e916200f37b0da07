// Codes as elements, for all 256 codes, NaN among them, and groups that begin and end anywhere.
#include <emulation/device_test.hpp>
#include <kernels/cuda/codes.hpp>
#include <support/random_tensors.hpp>

#include <gtest/gtest.h>

#include <vector>

namespace maniple {
namespace {

using testing::data;
using testing::downloaded;
using testing::hashed;
using testing::uniform;
using testing::uploaded;

struct Layout {
  int bits;
  bool e4m3;
  int columns;
  int group;  // 0: a row has one scale, which elements do not hold
  int first = 0;
};
void PrintTo(const Layout& l, std::ostream* out) {
  *out << l.bits << (l.e4m3 ? " e4m3 " : " bits ") << l.columns << " columns, groups of " << l.group
       << " from " << l.first;
}

class Codes : public testing::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Orders, Codes, ::testing::Range(uint64_t{0}, uint64_t{2}));

// The contract of expand_rows: code - zero, or (code - zero) * scale in fp32, rounded once.
template <typename T>
uint16_t element_of(const Layout& l, uint8_t code, uint8_t zero, float scale) {
  float value = l.e4m3 ? 0 : static_cast<float>(code - zero);
  if (l.e4m3) {
    Float8 number;
    number.bits = code;
    value = static_cast<float>(number);
  }
  return std::bit_cast<uint16_t>(static_cast<T>(l.group > 0 ? value * scale : value));
}

template <typename T>
void expect_elements(device::DeviceUnderTest& device, const Layout& l, DType dtype) {
  constexpr int rows = 19;
  const int groups = l.group > 0 ? (l.first + l.columns - 1) / l.group + 1 : 1,
            row_bytes = (l.columns * l.bits + 127) / 128 * 16;
  const auto code_at = [&](int row, int column) {
    const auto code = static_cast<uint8_t>(row * l.columns + column + (row * 37 & 1));
    return static_cast<uint8_t>(l.bits == 4 ? code & 15 : code);
  };
  std::vector<uint8_t> codes(static_cast<size_t>(rows * row_bytes)), zeros;
  std::vector<float> scales;
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < l.columns; ++column)
      codes[static_cast<size_t>(row * row_bytes + column * l.bits / 8)] |=
          static_cast<uint8_t>(code_at(row, column) << column * l.bits % 8);
  for (uint64_t i = 0; i < static_cast<uint64_t>(rows * groups); ++i) {
    scales.push_back(0.7f + uniform(7, i));
    zeros.push_back(static_cast<uint8_t>(hashed(i) % (1U << l.bits)));
  }
  Tensor codes_there = uploaded(device.memory(), codes), scales_there = uploaded(device.memory(), scales),
         zeros_there = uploaded(device.memory(), zeros);
  Tensor out =
      uploaded(device.memory(), std::vector<uint16_t>(static_cast<size_t>(rows * l.columns), 0x7fff));
  const cuda::CodeMatrix matrix{data<uint8_t>(codes_there),
                                data<float>(scales_there),
                                l.e4m3 ? nullptr : data<uint8_t>(zeros_there),
                                l.bits,
                                l.e4m3,
                                l.group > 0,
                                DType::fp32,
                                0,
                                row_bytes,
                                l.columns,
                                l.group > 0 ? l.group : 1 << 30,
                                groups,
                                l.first,
                                1};
  cuda::expand_rows(device.stream(), matrix, nullptr, 0, rows, dtype, out.view().data, rows);
  const std::vector<uint16_t> found = downloaded<uint16_t>(device.memory(), out);
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < l.columns; ++column) {
      const auto group = static_cast<size_t>(row * groups + (l.group > 0 ? (l.first + column) / l.group : 0));
      const uint16_t expected = element_of<T>(l, code_at(row, column), zeros[group], scales[group]),
                     element = found[static_cast<size_t>(row * l.columns + column)];
      const auto is_nan = [](uint16_t bits) {
        const auto value = static_cast<float>(std::bit_cast<T>(bits));
        return value != value;
      };
      ASSERT_TRUE(element == expected || (is_nan(element) && is_nan(expected)))
          << ::testing::PrintToString(l) << ", row " << row << ", column " << column << ": " << element
          << ", not " << expected;
    }
}

TEST_P(Codes, AreElementsOfEveryFormatGroupAndPlace) {
  for (const Layout& layout : {Layout{8, true, 256, 0},
                               {8, true, 256, 128},
                               {8, true, 264, 128, 120},
                               {8, true, 96, 24, 5},
                               {8, false, 256, 0},
                               {8, false, 256, 64},
                               {8, false, 248, 48, 7},
                               {8, false, 61, 0},
                               {8, false, 24, 1},
                               {4, false, 40, 1},
                               {4, false, 512, 0},
                               {4, false, 512, 128},
                               {4, false, 136, 32, 16},
                               {4, false, 120, 40, 3},
                               {4, false, 77, 32}}) {
    ASSERT_NO_FATAL_FAILURE(expect_elements<BFloat16>(device(), layout, DType::bf16));
    ASSERT_NO_FATAL_FAILURE(expect_elements<Float16>(device(), layout, DType::fp16));
  }
}

}  // namespace
}  // namespace maniple
