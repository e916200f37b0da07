#include <kernels/tensor/dtype.hpp>

#include <gtest/gtest.h>

#include <cmath>

namespace maniple {
namespace {

TEST(Float16, RoundsToNearestEvenAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    Float16 half;
    half.bits = static_cast<uint16_t>(bits);
    const float value = static_cast<float>(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Float16(value))));
      continue;
    }
    ASSERT_EQ(Float16(value).bits, bits);
    if ((bits & 0x7fffu) >= 0x7bffu) continue;
    Float16 next;
    next.bits = static_cast<uint16_t>(bits + 1);
    const float middle = (value + static_cast<float>(next)) / 2;
    ASSERT_EQ(Float16(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(Float16(std::nextafter(middle, value)).bits, bits);
    ASSERT_EQ(Float16(std::nextafter(middle, static_cast<float>(next))).bits, bits + 1);
  }
  EXPECT_EQ(Float16(65519.9f).bits, 0x7bffu);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7c00u);
  EXPECT_EQ(Float16(-1e30f).bits, 0xfc00u);
}

TEST(Float8, RoundsToNearestEvenSaturatesAndComesBack) {
  const auto value_of = [](uint32_t bits) {
    Float8 code;
    code.bits = static_cast<uint8_t>(bits);
    return static_cast<float>(code);
  };
  for (uint32_t bits = 0; bits < 0x100u; ++bits) {
    const uint32_t exponent = bits >> 3 & 15u, mantissa = bits & 7u;
    const float value = value_of(bits);
    if ((bits & 0x7fu) == 0x7fu) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    const double exact =
        exponent ? std::ldexp(8 + mantissa, static_cast<int>(exponent) - 10) : std::ldexp(mantissa, -9);
    ASSERT_EQ(value, bits < 128 ? exact : -exact);
    ASSERT_EQ(Float8(value).bits, bits);
    if ((bits & 0x7fu) >= 0x7eu) continue;
    const float next = value_of(bits + 1), middle = (value + next) / 2;
    ASSERT_EQ(Float8(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(Float8(std::nextafter(middle, value)).bits, bits);
    ASSERT_EQ(Float8(std::nextafter(middle, next)).bits, bits + 1);
  }
  EXPECT_EQ(Float8(1e30f).bits, 0x7eu);
  EXPECT_EQ(Float8(-464.1f).bits, 0xfeu);
  EXPECT_EQ(Float8(std::nanf("")).bits, 0x7fu);
}

TEST(PowerScale, IsAPowerOfTwoAndComesBack) {
  for (int bits = 0; bits < 0xff; ++bits) {
    PowerScale scale;
    scale.bits = static_cast<uint8_t>(bits);
    const auto value = static_cast<float>(scale);
    ASSERT_EQ(value, std::ldexp(1.0, bits - 127));
    ASSERT_EQ(PowerScale(value).bits, bits);
  }
  PowerScale nan;
  nan.bits = PowerScale::nan;
  EXPECT_TRUE(std::isnan(static_cast<float>(nan)));
  EXPECT_EQ(PowerScale(1.5F).bits, 128);
  EXPECT_EQ(PowerScale(0.0F).bits, 0);
}

}  // namespace
}  // namespace maniple
