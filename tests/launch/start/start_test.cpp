// When the deadline of a start is taken back, and what a start reads and leaves alone.
#include <gtest/gtest.h>
#include <launch/commands/commands.hpp>
#include <launch/run_directory/run_directory.hpp>
#include <launch/start/command.hpp>
#include <launch/start/start.hpp>
#include <parallel/self/self_world.hpp>
#include <runtime/collective_phase.hpp>
#include <support/temp_directory.hpp>
#include <support/thread_world.hpp>

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

// What was asked for is constant from the end of parsing on: nothing that a command gets can be assigned to.
static_assert(std::is_const_v<decltype(JobTask::options)::element_type>);
static_assert(std::is_same_v<decltype(&run_generate),
                             ExitCode (*)(World&, const GenerateOptions&, const Supervision&)>);
static_assert(
    std::is_same_v<decltype(&run_doctor), ExitCode (*)(World&, const DoctorOptions&, const Supervision&)>);
static_assert(
    std::is_same_v<decltype(&agree), AgreedJob (*)(World&, const EngineOptions&, std::optional<DType>)>);
static_assert(std::is_same_v<decltype(&place), RankPlace (*)(World&, const EngineOptions&, const JobPlan&)>);

TEST(Start, GoesOnInTheTypeThatTheRunWasBegunInUnlessAnotherIsAskedFor) {
  const TempDirectory fresh, begun;
  RunDirectory::Options settings;
  settings.path = begun.path();
  settings.me = this_process("here", "");
  settings.manifest.set("dtype", "bf16");
  settings.manifest.set("requests", "1");
  RunDirectory(settings).record({JournalRecord::Kind::started, 0, {}});
  const auto type_of = [](const JobOptions& options) {
    std::optional<DType> type;
    run_ranks(2, [&](World& world) {
      const std::optional<DType> mine = begun_type(world, options);
      if (world.rank() == 0) type = mine;
    });
    return type;
  };
  JobOptions options;
  EXPECT_EQ(type_of(options), std::nullopt);
  options.run_dir = fresh.path();
  EXPECT_EQ(type_of(options), std::nullopt);
  options.run_dir = begun.path();
  EXPECT_EQ(type_of(options), DType::bf16);
  options.engine.dtype = DType::fp32;
  EXPECT_EQ(type_of(options), std::nullopt);
}

}  // namespace
}  // namespace maniple
