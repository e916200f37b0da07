#include <gtest/gtest.h>
#include <parallel/self/self_world.hpp>
#include <runtime/control/health.hpp>

namespace maniple {

namespace {

struct BrokenWorld : SelfWorld {
  std::optional<std::string> fault() override { return "rank 0 of a group: the network is down"; }
};

TEST(HealthDeathTest, a_fault_in_the_background_ends_the_job_and_is_told) {
  const auto wait_under_watch = [] {
    BrokenWorld world;
    Pulse pulse;
    const Health health(world, pulse, {.beat = std::chrono::milliseconds(10)});
    std::this_thread::sleep_for(std::chrono::seconds(10));
  };
  EXPECT_EXIT(wait_under_watch(), testing::ExitedWithCode(76),
              "error: rank 0 of a group: the network is down\n.*\n.*\n.*noticed by rank 0");
}

}  // namespace

}  // namespace maniple
