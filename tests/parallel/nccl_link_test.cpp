// Links between stages over a fake NCCL, each stage a thread.
#include <gtest/gtest.h>
#include <kernels/cpu/cpu_device.hpp>
#include <parallel/nccl/nccl_groups.hpp>
#include <parallel/subset_transport.hpp>
#include <support/fake_nccl.hpp>
#include <support/thread_world.hpp>

#include <fmt/format.h>

#include <deque>
#include <map>
#include <mutex>
#include <thread>

namespace maniple {
namespace {

constexpr int64_t width = 24, most = 50;
const StageRows largest{most, width, DType::fp32};

// Logs what orders the streams of a rank, one log for each of its lanes in the order in which it makes them.
class LoggedNccl : public FakeNccl {
 public:
  using Log = std::vector<std::string>;

  std::unique_ptr<NcclLane> make_lane(Device& device) override {
    const std::lock_guard lock(mutex_);
    return std::make_unique<Lane>(logs_[device.description()].emplace_back());
  }
  std::deque<Log>& logs_of(const std::string& device) { return logs_[device]; }

 private:
  struct Lane final : NcclLane {
    explicit Lane(Log& calls) : log(calls) {}
    NcclStream stream() override { return log.emplace_back("nccl"), nullptr; }
    void mark(size_t turn) override { log.push_back(fmt::format("mark {}", turn)); }
    void mark_device(size_t turn) override { log.push_back(fmt::format("mark device {}", turn)); }
    void follow_device(size_t turn) override { log.push_back(fmt::format("follow device {}", turn)); }
    void device_follows(size_t turn) override { log.push_back(fmt::format("device follows {}", turn)); }
    Log& log;
  };

  std::mutex mutex_;
  std::map<std::string, std::deque<Log>> logs_;
};

// Every stage of a pipeline runs f(link, rank). Ranks have a GPU each, or all share one.
void run_stages(int stages, const std::shared_ptr<NcclApi>& nccl,
                const std::function<void(StageLink*, int, NcclGroups&)>& f, bool shared = false,
                GpuTransport choice = GpuTransport::automatic) {
  run_ranks(stages, [&](World& world) {
    const int rank = world.rank();
    CpuDevice device(shared ? "GPU" : fmt::format("GPU {}", rank));
    NcclGroups groups(nccl, choice);
    const auto link =
        groups.make_link(world.transport(), rank == 0 ? std::nullopt : std::optional(rank - 1),
                         rank + 1 == stages ? std::nullopt : std::optional(rank + 1), largest, device);
    f(link.get(), rank, groups);
  });
}

std::vector<float> rows_of(uint64_t step, int64_t rows) {
  std::vector<float> values(static_cast<size_t>(rows * width));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(step * 10000 + i);
  return values;
}
ConstTensorView view(const std::vector<float>& values) {
  return view_of(values.data(), DType::fp32, {static_cast<int64_t>(values.size()) / width, width});
}

// Every stage adds one to what it takes.
TEST(NcclLink, CarriesTheRowsOfEveryStepInOrder) {
  run_stages(4, std::make_shared<FakeNccl>(), [](StageLink* link, int rank, NcclGroups& groups) {
    ASSERT_NE(link, nullptr);
    EXPECT_EQ(groups.description(), "NCCL 2.28.9");
    uint64_t bytes = 0;
    for (uint64_t step = 1; step <= 20; ++step) {
      const auto rows = static_cast<int64_t>(1 + step * 7 % most);
      const std::vector<float> sent = rows_of(step, rows);
      bytes += sent.size() * sizeof(float);
      if (rank == 0) {
        link->send({step}, view(sent));
        continue;
      }
      const TensorView taken = link->take({step}, rows);
      ASSERT_EQ(taken.shape, (Shape{rows, width}));
      for (int64_t i = 0; i < taken.shape.elements(); ++i) {
        ASSERT_EQ(taken.as<float>()[i], sent[static_cast<size_t>(i)] + static_cast<float>(rank - 1));
        taken.as<float>()[i] += 1;
      }
      if (rank < 3) link->send({step}, taken);
      link->release();
    }
    const CollectiveCounts counts = link->counts();
    const auto sum_of = [&](CollectiveOp op) {
      uint64_t sum = 0;
      for (const CollectiveCount& count : counts.by_op[static_cast<size_t>(op)]) sum += count.bytes;
      return sum;
    };
    EXPECT_EQ(sum_of(CollectiveOp::send), rank < 3 ? bytes : 0);
    EXPECT_EQ(sum_of(CollectiveOp::receive), rank > 0 ? bytes : 0);
  });
}

// The two slots of a direction take turns; a slot's next message waits for its last reader, and for nothing after it.
TEST(NcclLink, OrdersItsStreamsWithTheStepsByMarksOfTheSameTurn) {
  const auto nccl = std::make_shared<LoggedNccl>();
  run_stages(3, nccl, [](StageLink* link, int rank, NcclGroups&) {
    for (uint64_t step = 1; step <= 3; ++step) {
      if (rank == 0) {
        link->send({step}, view(rows_of(step, 2)));
        continue;
      }
      const TensorView taken = link->take({step}, 2);
      if (rank == 1) link->send({step}, taken);
      link->release();
    }
  });
  const auto& logs = nccl->logs_of("GPU 1");
  ASSERT_EQ(logs.size(), 2u);
  LoggedNccl::Log in, out;
  for (const int turn : {0, 1, 0}) {
    for (const char* call : {"follow device {}", "nccl", "mark {}", "device follows {}", "mark device {}"})
      in.push_back(fmt::format(fmt::runtime(call), turn));
    for (const char* call : {"device follows {}", "mark device {}", "follow device {}", "nccl", "mark {}"})
      out.push_back(fmt::format(fmt::runtime(call), turn));
  }
  EXPECT_EQ(logs[0], in);
  EXPECT_EQ(logs[1], out);
}

TEST(NcclLink, IsNotMadeWhereRanksShareAGpuOrAreAskedToUseTheHost) {
  const auto absent = [](const char* description) {
    return [description](StageLink* link, int, NcclGroups& groups) {
      EXPECT_EQ(link, nullptr);
      EXPECT_EQ(groups.description(), description);
    };
  };
  run_stages(3, std::make_shared<FakeNccl>(),
             absent("GPU tensors through the host (ranks 0 and 1 share a GPU)"), true);
  run_stages(2, std::make_shared<FakeNccl>(), absent("GPU tensors through the host (as asked)"), false,
             GpuTransport::host);
}

TEST(NcclLink, BesideATensorGroupNeedsAnNcclThatKeepsTheOrderOfLaunches) {
  const struct {
    int version, switched;  // ranks, on which the order is kept
    std::string_view description;
  } cases[] = {{22505, 2, "NCCL 2.25.5, stages through the host (before 2.26)"},
               {22602, 1, "NCCL 2.26.2, stages through the host (NCCL_LAUNCH_ORDER_IMPLICIT is not 1)"},
               {22602, 2, "NCCL 2.26.2, launches in order (NCCL_LAUNCH_ORDER_IMPLICIT)"}};
  for (const auto& [version, switched, description] : cases) {
    const auto nccl = std::make_shared<FakeNccl>();
    nccl->set_version(version);
    run_ranks(2, [&](World& world) {
      CpuDevice device(fmt::format("GPU {}", world.rank()));
      NcclGroups groups(nccl, GpuTransport::automatic, {.orders_launches = world.rank() < switched});
      const std::vector<int> mine{world.rank()};
      SubsetTransport alone(world.transport(), mine);
      const auto tensor = groups.make(alone, mine, device);
      const auto link =
          groups.make_link(world.transport(), world.rank() == 0 ? std::nullopt : std::optional(0),
                           world.rank() == 1 ? std::nullopt : std::optional(1), largest, device);
      EXPECT_EQ(link != nullptr, description.find("in order") != description.npos);
      EXPECT_EQ(groups.description(), description);
    });
  }
}

// An abort ends the wait for a stage that never sends; the health thread sees the fault of any link.
TEST(NcclLink, EndsByAnAbortWhenAStageIsMissing) {
  const auto nccl = std::make_shared<FakeNccl>();
  EXPECT_THROW(run_stages(2, nccl,
                          [&](StageLink* link, int rank, NcclGroups& groups) {
                            if (rank == 0) return groups.abort();
                            link->take({1}, 3);
                          }),
               Error);
}

TEST(NcclLink, AFaultInTheBackgroundIsFound) {
  const auto nccl = std::make_shared<FakeNccl>();
  std::atomic<int> joined = 0;
  run_stages(2, nccl, [&](StageLink*, int rank, NcclGroups& groups) {
    for (++joined; joined < 2;) std::this_thread::yield();
    if (rank == 0) nccl->break_in_background(FakeNccl::remote_error);
    while (!groups.fault()) std::this_thread::yield();
    EXPECT_NE(groups.fault()->find("world ranks 0, 1"), std::string::npos);
    groups.abort();
  });
}

}  // namespace
}  // namespace maniple
