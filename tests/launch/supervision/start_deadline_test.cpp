#include <gtest/gtest.h>
#include <launch/supervision/start_deadline.hpp>

#include <cstdlib>

namespace maniple {
namespace {

using std::chrono::seconds;

TEST(StartDeadlineDeathTest, EndsTheProcessWithAMessageWhenItPasses) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const StartDeadline deadline({}, std::_Exit, seconds(1));
        std::this_thread::sleep_for(seconds(30));
      },
      ::testing::ExitedWithCode(76), "did not find each other within 1 s");
}

TEST(StartDeadline, IsForgottenInTime) { const StartDeadline deadline({}, std::_Exit, seconds(60)); }

}  // namespace
}  // namespace maniple
