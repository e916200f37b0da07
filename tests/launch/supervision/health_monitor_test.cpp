#include <gtest/gtest.h>
#include <launch/supervision/health_monitor.hpp>
#include <parallel/self/memory_mailbox.hpp>
#include <parallel/self/self_world.hpp>
#include <support/thread_world.hpp>

#include <barrier>
#include <stdexcept>

namespace maniple {

namespace {

using std::chrono::milliseconds;

const Deadlines short_deadlines{.heartbeat = milliseconds(10),
                                .silence = milliseconds(400),
                                .progress = milliseconds(200),
                                .outside_steps = milliseconds(10'000),
                                .report = milliseconds(1000)};

// What a launcher would see. The test worlds cannot end the process.
void tell_and_exit(const FaultReport& fault) {
  fmt::print(stderr, "rank {} in {} {}: {}; noticed by {}{}\n", fault.rank, name_of(fault.last_seen.phase),
             fault.last_seen.step, fault.error.what(), fault.noticed_by,
             fault.from_outside ? ", from outside" : "");
  std::_Exit(static_cast<int>(fault.error.code()));
}

// Runs a rank under watch until the job ends.
void expect_fault(const char* message, const std::function<void(HealthMonitor&)>& work) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto watched = [&] {
    SelfWorld world;
    NodePeers peers(world);
    HealthMonitor health(world, peers, short_deadlines, tell_and_exit);
    work(health);
    std::this_thread::sleep_for(std::chrono::seconds(10));
  };
  EXPECT_EXIT(watched(), testing::ExitedWithCode(76), message);
}

struct BrokenWorld : SelfWorld {
  std::optional<std::string> fault() override { return "rank 0 of a group: the network is down"; }
};

TEST(HealthMonitorDeathTest, AFaultInTheBackgroundEndsTheJobAndIsTold) {
  const auto wait_under_watch = [] {
    BrokenWorld world;
    NodePeers peers(world);
    const HealthMonitor health(world, peers, short_deadlines, tell_and_exit);
    std::this_thread::sleep_for(std::chrono::seconds(10));
  };
  EXPECT_EXIT(wait_under_watch(), testing::ExitedWithCode(76),
              "rank 0 in start 0: rank 0 of a group: the network is down; noticed by 0");
}

TEST(HealthMonitorDeathTest, AnErrorOfTheNetworkUnderItIsTold) {
  struct DamagedWorld : SelfWorld {
    std::optional<std::string> fault() override { throw std::runtime_error("the network is down"); }
  };
  const auto wait_under_watch = [] {
    DamagedWorld world;
    NodePeers peers(world);
    const HealthMonitor health(world, peers, short_deadlines, tell_and_exit);
    std::this_thread::sleep_for(std::chrono::seconds(10));
  };
  EXPECT_EXIT(wait_under_watch(), testing::ExitedWithCode(70), "rank 0 in start 0: the network is down");
}

TEST(HealthMonitorDeathTest, ARankThatIsSilentIsNamed) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto watched = [] {
    run_ranks(2, [](World& world) {
      if (world.rank() == 0) {
        NodePeers peers(world);
        const HealthMonitor health(world, peers, short_deadlines, tell_and_exit);
        std::this_thread::sleep_for(std::chrono::seconds(10));
      }
      const NodePeers peers(world);
      const Channel unused = world.make_channel();
      std::this_thread::sleep_for(std::chrono::seconds(10));
    });
  };
  EXPECT_EXIT(watched(), testing::ExitedWithCode(76),
              "rank 1 in start 0: has not been heard of for 0 s; noticed by 0");
}

// Rank 0 of several ranks that never send a heartbeat.
struct SilentWorld : SelfWorld {
  explicit SilentWorld(std::vector<RankLocation> locations) : all(std::move(locations)) {}
  int size() const override { return static_cast<int>(all.size()); }
  const std::vector<RankLocation>& locations() const override { return all; }
  Channel make_channel() override {
    channel = make_memory_channel(size());
    return {std::move(channel.root), std::move(channel.leaves[0])};
  }
  std::vector<RankLocation> all;
  MemoryChannel channel;
};

TEST(HealthMonitorDeathTest, SeveralRanksOfANodeFallSilentWhenTheNodeIsGone) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto watched = [](const std::vector<RankLocation>& locations) {
    SilentWorld world(locations);
    NodePeers peers(world);
    const HealthMonitor health(world, peers, short_deadlines, tell_and_exit);
    std::this_thread::sleep_for(std::chrono::seconds(10));
  };
  EXPECT_EXIT(watched({{"n0", 0, 0, 1}, {"n1", 1, 0, 2}, {"n1", 1, 1, 2}}), testing::ExitedWithCode(76),
              "rank 1 in start 0: has not been heard of for 0 s; noticed by 0, from outside");
  EXPECT_EXIT(watched({{"n0", 0, 0, 1}, {"n1", 1, 0, 1}}), testing::ExitedWithCode(76),
              "rank 1 in start 0: has not been heard of for 0 s; noticed by 0\n");
}

TEST(HealthMonitorDeathTest, AStepWithoutProgressIsAFault) {
  expect_fault("rank 0 in step 7: has made no progress", [](HealthMonitor& health) {
    health.activity().step = 7;
    health.activity().phase = Phase::step;
  });
}

TEST(HealthMonitorDeathTest, TheRankThatStandsStillIsNamedAndNotThoseThatWaitForIt) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto watched = [](bool waiting_shows) {
    Deadlines deadlines = short_deadlines;
    deadlines.progress = milliseconds(400);
    deadlines.silence = milliseconds(900);
    std::barrier start(3);
    run_ranks(3, [&, waiting_shows](World& world) {
      NodePeers peers(world);
      HealthMonitor health(world, peers, deadlines, tell_and_exit);
      const bool stuck = world.rank() == 1;
      health.activity().step = 7;
      health.activity().layer = stuck && !waiting_shows ? 2 : 3;
      health.activity().waits = waiting_shows && !stuck;
      start.arrive_and_wait();
      health.activity().phase = Phase::step;
      std::this_thread::sleep_for(std::chrono::seconds(10));
    });
  };
  for (const bool waiting_shows : {true, false})
    EXPECT_EXIT(watched(waiting_shows), testing::ExitedWithCode(76),
                "rank 1 in step 7: has made no progress");
}

// As on GPUs, where ranks wait for each other on the device.
TEST(HealthMonitorDeathTest, AllAreNamedWhereTheOneThatStandsStillCannotBeTold) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto watched = [] {
    run_ranks(4, [](World& world) {
      NodePeers peers(world);
      HealthMonitor health(world, peers, short_deadlines, tell_and_exit);
      health.activity().step = world.rank() == 0 ? 8 : 7;
      health.activity().phase = Phase::step;
      std::this_thread::sleep_for(std::chrono::seconds(10));
    });
  };
  EXPECT_EXIT(watched(), testing::ExitedWithCode(76),
              "rank 1 in step 7: has made no progress for [0-9]+ s, nor have ranks 2, 3");
}

TEST(HealthMonitorDeathTest, ADiskThatTakesNothingIsAFault) {
  expect_fault("rank 0 in idle 0: the disk has taken nothing", [](HealthMonitor& health) {
    health.activity().phase = Phase::idle;
    ++health.activity().disk;
  });
}

TEST(HealthMonitorDeathTest, ACoordinatorThatStandsStillIsAFaultThoughAllAreIdle) {
  expect_fault("rank 0 in idle 0: rank 0 neither reads requests nor plans steps", [](HealthMonitor& health) {
    health.activity().phase = Phase::idle;
    health.activity().turns = 7;
  });
}

TEST(HealthMonitorDeathTest, AnErrorOfOneRankEndsTheJob) {
  expect_fault("rank 0 in start 0: out of luck; noticed by 0", [](HealthMonitor& health) {
    health.supervise([]() -> ExitCode { throw Error(ExitCode::fault, "out of luck"); });
  });
}

TEST(HealthMonitor, LetsRanksWaitAndWriteAsLongAsTheyMove) {
  SelfWorld world;
  NodePeers peers(world);
  HealthMonitor health(world, peers, short_deadlines, tell_and_exit);
  health.activity().phase = Phase::step;
  for (int step = 0; step < 40; ++step) {
    std::this_thread::sleep_for(milliseconds(10));
    ++health.activity().step;
    ++health.activity().disk;
    ++health.activity().turns;
  }
  health.activity().turns = 0;
  health.activity().disk = 0;
  health.activity().phase = Phase::idle;
  std::this_thread::sleep_for(milliseconds(400));
}

// Odd: a thread waits for the disk, each time for the next piece.
TEST(HealthMonitor, LetsAThreadWaitForTheDiskAsLongAsItTakesPieces) {
  SelfWorld world;
  NodePeers peers(world);
  HealthMonitor health(world, peers, short_deadlines, tell_and_exit);
  health.activity().phase = Phase::idle;
  for (uint32_t disk = 1; disk < 81; disk += 2) {
    health.activity().disk = disk;
    std::this_thread::sleep_for(milliseconds(10));
  }
  health.activity().disk = 0;
}

TEST(HealthMonitor, LetsAllWaitForOneThatLoadsOrWrites) {
  run_ranks(2, [](World& world) {
    Deadlines deadlines = short_deadlines;
    deadlines.outside_steps = milliseconds(200);
    NodePeers peers(world);
    HealthMonitor health(world, peers, deadlines, tell_and_exit);
    for (const Phase phase : {Phase::load, Phase::end}) {
      health.activity().phase = phase;
      for (int block = 0; block < 40; ++block) {
        std::this_thread::sleep_for(milliseconds(10));
        if (world.rank() == 1 && phase == Phase::load) ++health.activity().layer;
        if (world.rank() == 0 && phase == Phase::end) ++health.activity().disk;
      }
      world.barrier();
    }
  });
}

TEST(Deadlines, LeaveTimeToSpeakBeforeAllAreGone) {
  for (const int seconds : {3, 60, 600}) {
    const milliseconds all_gone = std::chrono::seconds(seconds);
    const Deadlines deadlines = Deadlines::within(all_gone);
    EXPECT_LT(deadlines.silence + 3 * deadlines.heartbeat + deadlines.report, all_gone);
    EXPECT_LT(deadlines.progress + deadlines.heartbeat + deadlines.report, all_gone);
  }
}

}  // namespace

}  // namespace maniple
