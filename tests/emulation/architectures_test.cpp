#include <kernels/cuda/architectures.hpp>

#include <gtest/gtest.h>

namespace maniple::cuda {
namespace {

TEST(Architectures, MachineCodeRunsWithinItsMajorVersion) {
  EXPECT_TRUE(has_code_for("80-real", 8, 0));
  EXPECT_TRUE(has_code_for("80-real", 8, 9));
  EXPECT_FALSE(has_code_for("86-real", 8, 0));
  EXPECT_FALSE(has_code_for("80-real", 9, 0));
  EXPECT_FALSE(has_code_for("90-real 100-real", 12, 0));
  EXPECT_TRUE(has_code_for("90-real 100-real", 10, 3));
}

TEST(Architectures, PtxRunsOnLaterOnes) {
  EXPECT_TRUE(has_code_for("90-real 80-virtual", 12, 0));
  EXPECT_TRUE(has_code_for("80-real 90", 12, 1));
  EXPECT_FALSE(has_code_for("100-virtual", 9, 0));
  EXPECT_FALSE(has_code_for("90", 8, 9));
}

TEST(Architectures, OfALetterRunOnThatOneAlone) {
  EXPECT_TRUE(has_code_for("90a", 9, 0));
  EXPECT_FALSE(has_code_for("90a", 10, 0));
  EXPECT_FALSE(has_code_for("100f-real", 9, 0));
}

TEST(Architectures, WithoutANumberAreThoseOfTheBuildMachine) {
  EXPECT_TRUE(has_code_for("native", 9, 0));
  EXPECT_TRUE(has_code_for("all-major", 12, 0));
  EXPECT_FALSE(has_code_for("", 9, 0));
}

}  // namespace
}  // namespace maniple::cuda
