// Codes as elements, for all 256 codes, NaN among them, and groups that begin and end anywhere.
#include <emulation/made_codes.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace maniple {
namespace {

using testing::CodeLayout;

class Codes : public testing::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Orders, Codes, ::testing::Range(uint64_t{0}, uint64_t{2}));

uint8_t code_at(const CodeLayout& layout, int row, int column) {
  const int code = row * layout.columns + column + (row * 37 & 1);
  return static_cast<uint8_t>(code & ((1 << layout.bits) - 1));
}

// The contract of expand_rows: code - zero, or (code - zero) * scale in fp32, rounded once.
template <typename T>
T element_at(const CodeLayout& layout, const testing::MadeCodes& made, int row, int column) {
  const uint8_t code = code_at(layout, row, column);
  const auto value_of_code = [&] {
    if (!layout.floating) return static_cast<float>(code - made.zero(row, column));
    constexpr float e2m1[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    if (layout.bits == 4) return code & 8 ? -e2m1[code & 7] : e2m1[code & 7];
    Float8 number;
    number.bits = code;
    return static_cast<float>(number);
  };
  const float value = value_of_code();
  return static_cast<T>(made.matrix().scaled ? value * made.scale(row, column) : value);
}

template <typename T>
void expect_elements(device::DeviceUnderTest& device, const CodeLayout& layout, DType dtype) {
  const testing::MadeCodes made(device.memory(), layout,
                                [&](int row, int column) { return code_at(layout, row, column); });
  const auto count = static_cast<size_t>(layout.rows * layout.columns);
  Tensor out = testing::uploaded(device.memory(), std::vector<uint16_t>(count, 0x7fff));
  cuda::expand_rows(device.stream(), made.matrix(), nullptr, 0, layout.rows, dtype, out.view().data,
                    layout.rows);
  const std::vector<uint16_t> found = testing::downloaded<uint16_t>(device.memory(), out);
  for (int row = 0; row < layout.rows; ++row)
    for (int column = 0; column < layout.columns; ++column) {
      const T expected = element_at<T>(layout, made, row, column),
              element = std::bit_cast<T>(found[static_cast<size_t>(row * layout.columns + column)]);
      const auto is_nan = [](T value) { return std::isnan(static_cast<float>(value)); };
      ASSERT_TRUE(std::bit_cast<uint16_t>(element) == std::bit_cast<uint16_t>(expected) ||
                  (is_nan(element) && is_nan(expected)))
          << layout.bits << (layout.floating ? " floating bits, " : " bits, ") << layout.columns
          << " columns, groups of " << layout.group << " from " << layout.first << ", row " << row
          << ", column " << column << ": " << static_cast<float>(element) << ", not "
          << static_cast<float>(expected);
    }
}

TEST_P(Codes, AreElementsOfEveryFormatGroupAndPlace) {
  constexpr int rows = 19;
  for (const CodeLayout& layout : {CodeLayout{rows, 256, 8, true},
                                   {rows, 256, 8, true, false, 128},
                                   {rows, 264, 8, true, false, 128, 120},
                                   {rows, 96, 8, true, false, 24, 5},
                                   {rows, 256, 8, false, true},
                                   {rows, 256, 8, false, true, 64},
                                   {rows, 248, 8, false, true, 48, 7},
                                   {rows, 61, 8},
                                   {rows, 24, 8, false, true, 1},
                                   {rows, 40, 4, false, true, 1},
                                   {rows, 512, 4, false, true},
                                   {rows, 512, 4, false, false, 128},
                                   {rows, 136, 4, false, true, 32, 16},
                                   {rows, 120, 4, false, true, 40, 3},
                                   {rows, 77, 4, false, true, 32},
                                   {rows, 512, 4, true, false, 32},
                                   {rows, 96, 4, true},
                                   {rows, 120, 4, true, false, 32, 8}}) {
    ASSERT_NO_FATAL_FAILURE(expect_elements<BFloat16>(device(), layout, DType::bf16));
    ASSERT_NO_FATAL_FAILURE(expect_elements<Float16>(device(), layout, DType::fp16));
  }
}

}  // namespace
}  // namespace maniple
