#include <kernels/cuda/architectures.hpp>

#include <gtest/gtest.h>

namespace maniple::cuda {
namespace {

TEST(Architectures, RunWhereTheProgrammingGuideSaysSo) {
  struct Case {
    const char* built;
    int major, minor;
    bool runs;
  };
  constexpr Case cases[] = {
      // machine code: within its major version, from its minor one on
      {"80-real", 8, 0, true},
      {"80-real", 8, 9, true},
      {"86-real", 8, 0, false},
      {"80-real", 9, 0, false},
      {"90-real 100-real", 12, 0, false},
      {"90-real 100-real", 10, 3, true},
      // PTX: later ones too
      {"90-real 80-virtual", 12, 0, true},
      {"80-real 90", 12, 1, true},
      {"100-virtual", 9, 0, false},
      {"90", 8, 9, false},
      // with a letter: that one alone
      {"90a", 9, 0, true},
      {"90a", 10, 0, false},
      {"100f-real", 9, 0, false},
      // words are of the build machine, or of all
      {"native", 9, 0, true},
      {"all-major", 12, 0, true},
      {"", 9, 0, false},
  };
  for (const auto& [built, major, minor, runs] : cases)
    EXPECT_EQ(has_code_for(built, major, minor), runs) << built << " on " << major << '.' << minor;
}

}  // namespace
}  // namespace maniple::cuda
