#include <gtest/gtest.h>
#include <launch/supervision/watchdog.hpp>

#include <atomic>
#include <optional>

namespace maniple {
namespace {

using std::chrono::milliseconds;

TEST(Watchdog, CallsOnceWhenItStarves) {
  std::atomic<int> calls = 0;
  const Watchdog watchdog(milliseconds(50), [&] { ++calls; });
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_EQ(calls, 1);
}

TEST(Watchdog, LetsWhoFeedsItLive) {
  bool on_expiry = false;
  std::optional<Watchdog> watchdog(std::in_place, milliseconds(400), [&] { on_expiry = true; });
  for (int meal = 0; meal < 40; ++meal) {
    std::this_thread::sleep_for(milliseconds(20));
    watchdog->feed();
  }
  watchdog.reset();
  EXPECT_FALSE(on_expiry);
}

}  // namespace
}  // namespace maniple
