#include <gtest/gtest.h>
#include <launch/supervision/node_peers.hpp>
#include <parallel/self/self_world.hpp>

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>

namespace maniple {
namespace {

using std::chrono::milliseconds;

// Two ranks as processes: this one, and a child that runs `life`.
class TwoProcesses : public SelfWorld, private Transport {
 public:
  explicit TwoProcesses(const std::function<void(World&)>& life) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    child_ = ::fork();
    rank_ = child_ == 0 ? 1 : 0;
    line_ = FileDescriptor(ends[rank_]);
    ::close(ends[1 - rank_]);
    if (child_ != 0) return;
    life(*this);
    ::_exit(0);
  }
  ~TwoProcesses() override { ::waitpid(child_, nullptr, 0); }

  int rank() const override { return rank_; }
  int size() const override { return 2; }
  const std::vector<RankLocation>& locations() const override { return locations_; }
  Transport& transport() override { return *this; }

 private:
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming) override {
    for (const auto& [to, bytes] : outgoing)
      EXPECT_EQ(::write(line_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    for (const auto& [from, bytes] : incoming)
      EXPECT_EQ(::recv(line_.get(), bytes.data(), bytes.size(), MSG_WAITALL),
                static_cast<ssize_t>(bytes.size()));
  }

  pid_t child_ = 0;
  int rank_ = 0;
  FileDescriptor line_;
  std::vector<RankLocation> locations_{{"here", 0, 0, 2}, {"here", 0, 1, 2}};
};

TEST(NodePeers, NoticeADeathAtOnceAndKnowWhereItHappened) {
  TwoProcesses world([](World& two) {
    NodePeers peers(two);
    peers.activity().phase = Phase::step;
    peers.activity().step = 7;
    two.barrier();
    ::raise(SIGKILL);
  });
  NodePeers peers(world);
  EXPECT_EQ(peers.wait(milliseconds(0)), std::nullopt);
  world.barrier();
  EXPECT_EQ(peers.wait(milliseconds(10'000)), 1);
  ASSERT_NE(peers.activity_of(1), nullptr);
  EXPECT_EQ(peers.activity_of(1)->heartbeat().phase, Phase::step);
  EXPECT_EQ(peers.activity_of(1)->heartbeat().step, 7U);
  EXPECT_EQ(peers.wait(milliseconds(1)), std::nullopt) << "told twice";
}

TEST(NodePeers, WhoSaysGoodbyeHasNotDied) {
  TwoProcesses world([](World& two) { const NodePeers peers(two); });
  NodePeers peers(world);
  EXPECT_EQ(peers.wait(milliseconds(10'000)), std::nullopt);
  EXPECT_EQ(peers.activity_of(1)->phase, Phase::gone);
}

TEST(NodePeers, LeaveWhenAllHaveComeSoFar) {
  TwoProcesses world([](World& two) {
    NodePeers peers(two);
    EXPECT_EQ(peers.leave(milliseconds(60'000)), std::nullopt) << "waits for the end of the last";
  });
  NodePeers peers(world);
  EXPECT_EQ(peers.leave(milliseconds(60'000)), std::nullopt);
}

TEST(NodePeers, NameWhoDoesNotLeave) {
  TwoProcesses world([](World& two) {
    const NodePeers peers(two);
    two.barrier();
  });
  NodePeers peers(world);
  EXPECT_EQ(peers.behind(Phase::finalize), 1);
  EXPECT_EQ(peers.leave(milliseconds(50)), 1);
  world.barrier();
}

// A process that said goodbye does not end: the launcher waits for it.
TEST(NodePeers, TheLastSeesTheOthersEnd) {
  TwoProcesses world([](World& two) {
    NodePeers peers(two);
    EXPECT_EQ(peers.leave(milliseconds(60'000)), std::nullopt);
    two.barrier();
    two.barrier();
  });
  NodePeers peers(world);
  EXPECT_EQ(peers.leave(milliseconds(1)), 1);
  world.barrier();
  EXPECT_EQ(peers.behind(Phase::gone), std::nullopt);
  EXPECT_EQ(peers.leave(milliseconds(50)), 1);
  world.barrier();
  EXPECT_EQ(peers.leave(milliseconds(60'000)), std::nullopt);
}

TEST(NodePeers, OneSpeaksAndAnotherOnlyIfThatOneDiesBefore) {
  TwoProcesses world([](World& two) {
    NodePeers peers(two);
    EXPECT_TRUE(peers.claim_fault_report());
    two.barrier();
    ::raise(SIGKILL);
  });
  NodePeers peers(world);
  world.barrier();
  EXPECT_FALSE(peers.claim_fault_report());
  EXPECT_EQ(peers.wait(milliseconds(10'000)), 1);
  EXPECT_TRUE(peers.claim_fault_report(1));
  peers.mark_fault_reported();
  EXPECT_FALSE(peers.claim_fault_report());
  EXPECT_FALSE(peers.claim_fault_report(1));
}

// Ignores segments in `before`: other jobs on this machine come and go.
bool leaves_no_memory(const std::set<std::filesystem::path>& before) {
  std::set<std::filesystem::path> fresh;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (entry.path().native().find("/maniple-") != std::string::npos && !before.contains(entry.path()))
      fresh.insert(entry.path());
  for (int wait = 0; wait < 100; ++wait) {
    if (std::ranges::none_of(fresh, [](const auto& path) { return std::filesystem::exists(path); }))
      return true;
    std::this_thread::sleep_for(milliseconds(50));
  }
  return false;
}

TEST(NodePeersDeathTest, WithoutRoomInSharedMemoryUseTheirOwnAndLeaveNothing) {
  const auto watched = [] {
    std::set<std::filesystem::path> before;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) before.insert(entry.path());
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit nothing{0, 0};
    ::setrlimit(RLIMIT_FSIZE, &nothing);
    SelfWorld world;
    NodePeers peers(world);
    peers.activity().step = 7;
    std::_Exit(leaves_no_memory(before) ? 0 : 1);
  };
  EXPECT_EXIT(watched(), testing::ExitedWithCode(0), "");
}

TEST(NodePeers, AreWoken) {
  SelfWorld world;
  NodePeers peers(world);
  peers.wake();
  EXPECT_EQ(peers.wait(milliseconds(60'000)), std::nullopt);
}

}  // namespace
}  // namespace maniple
