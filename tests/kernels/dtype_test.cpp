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

}  // namespace
}  // namespace maniple
