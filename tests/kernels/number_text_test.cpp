#include <kernels/support/number_text.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace maniple {
namespace {

TEST(NumberText, HasThreeOrFourDigits) {
  EXPECT_EQ(number_text(0.05271), "0.0527");
  EXPECT_EQ(number_text(7.181), "7.18");
  EXPECT_EQ(number_text(-208.33), "-208.3");
  EXPECT_EQ(number_text(16010.4), "16010");
  EXPECT_EQ(number_text(std::nan("")), "-");
}

TEST(BytesText, HasPowersOf1024) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(64 << 10), "64 KiB");
  EXPECT_EQ(bytes_text(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(bytes_text(13.517 * (1 << 30)), "13.5 GiB");
  EXPECT_EQ(bytes_text(999.7 * 1024), "999.7 KiB");
  EXPECT_EQ(bytes_text(0x1p50), "1024 TiB");
  EXPECT_EQ(bytes_text(std::numeric_limits<uint64_t>::max()), "unlimited");
  EXPECT_EQ(bytes_text(std::nan("")), "-");
}

}  // namespace
}  // namespace maniple
