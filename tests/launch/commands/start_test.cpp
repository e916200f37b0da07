// When the deadline of a start is taken back.
#include <gtest/gtest.h>
#include <launch/commands/commands.hpp>
#include <parallel/self/self_world.hpp>
#include <runtime/collective_phase.hpp>

#include <cstdlib>
#include <optional>
#include <utility>

namespace maniple {
namespace {

using std::chrono::seconds;

GenerateOptions patient() {
  GenerateOptions options;
  options.engine.model = "/there/is/no/model";
  options.deadline = seconds(60);
  return options;
}

// A start in which the ranks have met, and one leaves before they watch each other.
struct LostWorld : SelfWorld {
  Channel make_channel() override {
    for (;;) std::this_thread::sleep_for(seconds(1));
  }
};

TEST(StartDeathTest, HoldsItsDeadlineUntilTheRanksAreWatched) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        LostWorld world;
        RankLog log;
        FaultReporter faults(world, "", log);
        NodePeers peers(world);
        std::optional<StartDeadline> start(std::in_place, Launch{}, std::_Exit, seconds(1));
        run_generate(world, patient(), {log, faults, start, peers});
      },
      ::testing::ExitedWithCode(76), "did not find each other within 1 s");
}

TEST(Start, EndsItsDeadlineWhenTheRanksAreWatched) {
  SelfWorld world;
  RankLog log;
  FaultReporter faults(world, "", log);
  NodePeers peers(world);
  std::optional<StartDeadline> start(std::in_place, Launch{}, std::_Exit, seconds(60));
  EXPECT_THROW(run_generate(world, patient(), {log, faults, start, peers}), CollectiveError)
      << "there is no model";
  EXPECT_FALSE(start);
}

}  // namespace
}  // namespace maniple
