#include <kernels/support/check.hpp>
#include <launch/options/grammar.hpp>

#include <gtest/gtest.h>

namespace maniple {
namespace {

TEST(Durations, HaveUnitsAndBareNumbersAreSeconds) {
  using namespace std::chrono_literals;
  EXPECT_EQ(parse_duration("180"), 180s);
  EXPECT_EQ(parse_duration("0.5s"), 500ms);
  EXPECT_EQ(parse_duration("3m"), 3min);
  EXPECT_EQ(parse_duration("1.5h"), 90min);
  for (const char* text : {"", "s", "-1s", "3 m", "1d", "04:00:00", "nan", "1e9"})
    EXPECT_THROW(parse_duration(text), Error) << text;
}

TEST(Bytes, TakePowersOfTwoAndOfTen) {
  EXPECT_EQ(parse_bytes("512"), 512U);
  EXPECT_EQ(parse_bytes("3K"), 3U << 10);
  EXPECT_EQ(parse_bytes("3KiB"), 3U << 10);
  EXPECT_EQ(parse_bytes("3KB"), 3000U);
  EXPECT_EQ(parse_bytes("2MiB"), 2U << 20);
  EXPECT_EQ(parse_bytes("4G"), size_t{4} << 30);
  EXPECT_EQ(parse_bytes("1TB"), 1'000'000'000'000U);
  for (const char* wrong : {"", "G", "-1", "1.5G", "4g", "4GX", "4 G", "4iB", "99999999999T"})
    EXPECT_THROW(parse_bytes(wrong), Error) << wrong;
}

}  // namespace
}  // namespace maniple
