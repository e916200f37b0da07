#include <gtest/gtest.h>
#include <runtime/control/watchdog.hpp>

#include <cstdio>

namespace maniple {
namespace {

using std::chrono::milliseconds;

TEST(WatchdogDeathTest, ends_the_process_when_it_starves) {
  const auto starve = [] {
    const Watchdog watchdog(milliseconds(50), ExitCode::stopped);
    std::this_thread::sleep_for(std::chrono::seconds(10));
  };
  EXPECT_EXIT(starve(), testing::ExitedWithCode(75), "");
}

TEST(WatchdogDeathTest, says_last_words) {
  const auto starve = [] {
    const Watchdog watchdog(milliseconds(50), ExitCode::fault, [] { std::fputs("who was late\n", stderr); });
    std::this_thread::sleep_for(std::chrono::seconds(10));
  };
  EXPECT_EXIT(starve(), testing::ExitedWithCode(76), "who was late");
}

TEST(Watchdog, lets_who_feeds_it_live) {
  Watchdog watchdog(milliseconds(400));
  for (int meal = 0; meal < 40; ++meal) {
    std::this_thread::sleep_for(milliseconds(20));
    watchdog.feed();
  }
}

}  // namespace
}  // namespace maniple
