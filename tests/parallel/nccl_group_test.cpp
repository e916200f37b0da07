// The life of NCCL communicators, with ranks as threads over a fake NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <kernels/workspace.hpp>
#include <parallel/nccl/nccl_communicator.hpp>
#include <parallel/nccl/nccl_groups.hpp>
#include <support/fake_nccl.hpp>
#include <support/thread_world.hpp>

#include <atomic>
#include <thread>

namespace maniple {

namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using namespace std::chrono_literals;

std::vector<std::string> calls_of(const FakeNccl& nccl, int rank) {
  std::vector<std::string> calls;
  for (const std::string& call : nccl.log())
    if (call.ends_with(fmt::format(" {}", rank))) calls.push_back(call.substr(0, call.find(' ')));
  return calls;
}

using Calls = std::vector<std::string>;

// The error that f throws, which must be a fault.
std::string fault_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::fault);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// A rank's group with a tensor to sum.
struct Rank {
  Rank(FakeNccl& nccl, Transport& members, NcclGroup::Clock::duration patience = 60s)
      : group(std::make_shared<NcclGroup>(nccl, members, "world ranks 4, 7", patience)),
        communicator(nccl, group, nullptr) {
    group->join(members);
  }

  std::shared_ptr<NcclGroup> group;
  NcclCommunicator communicator;
  std::vector<float> values = std::vector<float>(5, 1.0f);
  TensorView x = view_of(values.data(), DType::fp32, {5});
};

TEST(NcclGroup, OneIdIsDrawnAndAllJoinWithIt) {
  FakeNccl nccl;
  run_transports(3, [&](Transport& members) {
    Rank rank(nccl, members);  // different ids would never be complete
    EXPECT_EQ(rank.group->rank(), members.rank());
    EXPECT_EQ(rank.group->size(), 3);
  });
  EXPECT_EQ(std::ranges::count(nccl.log(), "draw"), 1);
}

TEST(NcclGroup, EndsByFinalizeAndThenDestroy) {
  FakeNccl nccl;
  run_transports(2, [&](Transport& members) {
    Rank rank(nccl, members);
    rank.communicator.all_reduce(rank.x);
  });
  for (int rank : {0, 1}) EXPECT_EQ(calls_of(nccl, rank), (Calls{"init", "finalize", "destroy"}));
}

TEST(NcclGroup, AGroupOfOneWorks) {
  FakeNccl nccl;
  run_transports(1, [&](Transport& members) {
    Rank rank(nccl, members);
    rank.communicator.all_reduce(rank.x);
    EXPECT_EQ(rank.values, std::vector<float>(5, 1.0f));
  });
  EXPECT_EQ(calls_of(nccl, 0), (Calls{"init", "finalize", "destroy"}));
}

TEST(NcclGroup, AMissingRankIsNoticedAtTheDeadline) {
  FakeNccl nccl;
  nccl.let_join(1);
  std::vector<std::string> faults(2);
  run_transports(
      2, [&](Transport& members) { faults[members.rank()] = fault_of([&] { Rank(nccl, members, 100ms); }); });
  for (int rank : {0, 1}) {
    EXPECT_THAT(faults[rank],
                HasSubstr(fmt::format("rank {} of the NCCL group of world ranks 4, 7: ncclCommInitRankConfig",
                                      rank)));
    EXPECT_EQ(calls_of(nccl, rank), (Calls{"init", "abort"}));
  }
  // The second may hear of the first one's abort before its own deadline.
  EXPECT_THAT(faults, Contains(HasSubstr("did not finish within 0.1 s")));
}

TEST(NcclGroup, ARefusedJoinSaysWhatNcclSaid) {
  FakeNccl nccl;
  nccl.refuse("init", FakeNccl::invalid_usage);
  run_transports(2, [&](Transport& members) {
    EXPECT_THAT(fault_of([&] { Rank(nccl, members); }),
                HasSubstr("ncclCommInitRankConfig failed: fake error 5"));
  });
}

TEST(NcclGroup, NoIdNoGroup) {
  FakeNccl nccl;
  nccl.refuse("draw", FakeNccl::remote_error);
  EXPECT_THAT(fault_of([&] { run_transports(2, [&](Transport& members) { Rank(nccl, members); }); }),
              HasSubstr("ncclGetUniqueId failed: fake error 6"));
  EXPECT_THAT(nccl.log(), Not(Contains(StartsWith("init"))));
}

TEST(NcclGroup, AFaultWhileJoiningIsNotWaitedOut) {
  FakeNccl nccl;
  nccl.let_join(0);
  run_transports(1, [&](Transport& members) {
    std::jthread breaks([&] {
      while (nccl.log().size() < 2) std::this_thread::yield();  // drawn and begun
      nccl.break_in_background(FakeNccl::remote_error);
    });
    EXPECT_THAT(fault_of([&] { Rank(nccl, members); }), HasSubstr("fake error 6"));
  });
  EXPECT_EQ(calls_of(nccl, 0), (Calls{"init", "abort"}));
}

TEST(NcclGroup, AFaultInTheBackgroundIsSeenFromAnotherThreadAndByTheNextCall) {
  FakeNccl nccl;
  run_transports(1, [&](Transport& members) {
    Rank rank(nccl, members);
    EXPECT_FALSE(rank.group->fault());
    nccl.break_in_background(FakeNccl::remote_error);
    std::optional<std::string> seen;
    std::thread([&] { seen = rank.group->fault(); }).join();
    EXPECT_THAT(seen.value_or(""),
                HasSubstr("world ranks 4, 7: what runs in the background failed: fake error 6"));
    EXPECT_THAT(fault_of([&] { rank.communicator.all_reduce(rank.x); }),
                HasSubstr("ncclAllReduce failed: fake error 6"));
  });
  EXPECT_EQ(calls_of(nccl, 0), (Calls{"init", "abort"}));
}

TEST(NcclGroup, AnAbortFromAnotherThreadFreesARankThatWaits) {
  FakeNccl nccl;
  std::atomic<int> joined = 0;
  run_transports(2, [&](Transport& members) {
    Rank rank(nccl, members);
    ++joined;
    std::jthread watchdog([&] {
      while (joined < 2) std::this_thread::yield();
      std::this_thread::sleep_for(20ms);
      if (members.rank() == 0) rank.group->abort();
    });
    if (members.rank() == 1) return;  // it sums nothing, and ends before the other rank
    EXPECT_THAT(fault_of([&] { rank.communicator.all_reduce(rank.x); }), HasSubstr("ncclAllReduce"));
  });
  EXPECT_EQ(calls_of(nccl, 0), (Calls{"init", "abort"}));
  EXPECT_EQ(calls_of(nccl, 1), (Calls{"init", "finalize", "abort"}));
}

TEST(NcclGroup, AnAbortThatTakesItsTimeDoesNotKeepTheFaultSecret) {
  FakeNccl nccl;
  nccl.let_abort_end(false);
  run_transports(1, [&](Transport& members) {
    Rank rank(nccl, members);
    nccl.break_in_background(FakeNccl::remote_error);
    EXPECT_THAT(fault_of([&] { rank.communicator.all_reduce(rank.x); }), HasSubstr("fake error 6"));
    EXPECT_FALSE(rank.group->fault());
    EXPECT_EQ(calls_of(nccl, 0), (Calls{"init"}));
    nccl.let_abort_end(true);
  });
  EXPECT_EQ(calls_of(nccl, 0), (Calls{"init", "abort"}));
}

TEST(NcclGroup, NothingIsCalledAfterAnAbort) {
  FakeNccl nccl;
  run_transports(1, [&](Transport& members) {
    Rank rank(nccl, members);
    rank.group->abort();
    rank.group->abort();
    EXPECT_FALSE(rank.group->fault());
    EXPECT_THAT(fault_of([&] { rank.communicator.all_reduce(rank.x); }),
                HasSubstr("rank 0 of the NCCL group of world ranks 4, 7: ncclAllReduce after the "
                          "communicator was aborted"));
    EXPECT_THAT(fault_of([&] { rank.communicator.broadcast(rank.x, 0); }), HasSubstr("aborted"));
  });
  EXPECT_EQ(calls_of(nccl, 0), (Calls{"init", "abort"}));
}

TEST(NcclGroup, AnExceptionThatPassesAbortsInsteadOfWaitingForTheOthers) {
  FakeNccl nccl;
  EXPECT_THROW(run_transports(1,
                              [&](Transport& members) {
                                Rank rank(nccl, members);
                                throw std::runtime_error("out of memory");
                              }),
               std::runtime_error);
  EXPECT_EQ(calls_of(nccl, 0), (Calls{"init", "abort"}));
}

TEST(NcclGroup, AnEndThatTheOthersDoNotJoinIsAnAbortAfterTheDeadline) {
  FakeNccl nccl;
  nccl.let_finalize_end(false);
  run_transports(1, [&](Transport& members) { Rank(nccl, members, 50ms); });
  EXPECT_EQ(calls_of(nccl, 0), (Calls{"init", "finalize", "abort"}));
}

TEST(NcclGroup, RanksThatDisagreeAboutASizeGetAnError) {
  FakeNccl nccl;
  run_transports(2, [&](Transport& members) {
    Rank rank(nccl, members);
    fault_of([&] { rank.communicator.all_reduce(rank.x.rows(0, 4 + members.rank())); });
  });
}

// --- which groups go over NCCL ---

struct Choice {
  bool nccl = false;
  std::string description;
};

// gpus: of each rank, by name.
Choice choose(GpuTransport transport, const std::vector<std::string>& gpus, int version = 22809) {
  const auto nccl = std::make_shared<FakeNccl>();
  nccl->set_version(version);
  Choice choice;
  run_transports(static_cast<int>(gpus.size()), [&](Transport& members) {
    CpuDevice device(gpus[members.rank()]);
    NcclGroups groups(nccl, transport);
    std::vector<int> ranks;
    for (int rank = 0; rank < members.size(); ++rank) ranks.push_back(10 * rank);
    const bool made = groups.make(members, ranks, device) != nullptr;
    if (members.rank() == 0) choice = {made, groups.description()};
  });
  return choice;
}

TEST(NcclGroups, NcclWhereEveryRankHasAGpuOfItsOwn) {
  const Choice choice = choose(GpuTransport::automatic, {"GPU-a", "GPU-b", "GPU-c"});
  EXPECT_TRUE(choice.nccl);
  EXPECT_EQ(choice.description, "NCCL 2.28.9");
}

TEST(NcclGroups, TheHostWhereRanksShareAGpu) {
  const Choice choice = choose(GpuTransport::automatic, {"GPU-a", "GPU-b", "GPU-b"});
  EXPECT_FALSE(choice.nccl);
  EXPECT_EQ(choice.description, "GPU tensors through the host (ranks 10 and 20 share a GPU)");
}

TEST(NcclGroups, TheHostWherePartsOfAGpuAreRefused) {
  const std::vector<std::string> parts{"GPU-a/1", "GPU-b", "GPU-a/2"};
  const Choice old = choose(GpuTransport::automatic, parts, 22907);
  EXPECT_FALSE(old.nccl);
  EXPECT_EQ(
      old.description,
      "GPU tensors through the host (ranks 0 and 20 have parts of one GPU, which NCCL before 2.30 refuses)");
  EXPECT_TRUE(choose(GpuTransport::automatic, parts, 23000).nccl);
}

TEST(NcclGroups, AGroupThatIsBeingFormedCanBeAborted) {
  const auto nccl = std::make_shared<FakeNccl>();
  nccl->let_join(0);
  NcclGroups groups(nccl, GpuTransport::automatic);
  const std::jthread health([&] {
    while (std::ranges::count(nccl->log(), "init 0") == 0) std::this_thread::yield();
    groups.abort();
  });
  run_transports(1, [&](Transport& alone) {
    CpuDevice device("GPU-a");
    const std::vector<int> ranks{0};
    EXPECT_THAT(fault_of([&] { groups.make(alone, ranks, device); }),
                HasSubstr("after the communicator was aborted"));
  });
}

TEST(NcclGroups, WhateverWasAskedFor) {
  EXPECT_TRUE(choose(GpuTransport::nccl, {"GPU-a", "GPU-a"}).nccl);
  const Choice choice = choose(GpuTransport::host, {"GPU-a", "GPU-b"});
  EXPECT_FALSE(choice.nccl);
  EXPECT_EQ(choice.description, "GPU tensors through the host (as asked)");
}

TEST(NcclGroups, TheLibraryIsOpenedUnlessTensorsGoThroughTheHost) {
  for (const GpuTransport transport : {GpuTransport::automatic, GpuTransport::nccl, GpuTransport::host}) {
    const auto nccl = std::make_shared<FakeNccl>();
    NcclGroups(nccl, transport).open();
    EXPECT_EQ(nccl->log(), transport == GpuTransport::host ? Calls{} : Calls{"open"});
  }
}

TEST(NcclGroups, SumsAreInAWindowWhereItIsAskedForAndNcclHasThem) {
  for (const int version : {22906, 22907}) {
    const bool can = version >= 22907;
    const auto nccl = std::make_shared<FakeNccl>();
    nccl->set_version(version);
    run_transports(2, [&](Transport& members) {
      CpuDevice device(fmt::format("GPU-{}", members.rank()));
      NcclGroups groups(nccl, GpuTransport::automatic, {.windows = true});
      const std::vector<int> ranks{0, 1};
      const auto group = groups.make(members, ranks, device);
      EXPECT_THAT(groups.description(),
                  HasSubstr(can ? ", sums in windows" : ", no windows (before 2.29.7)"));
      const Workspace::Sizes sizes{0, 1024};
      Workspace workspace(device, sizes, group->sum_memory(sizes.sums));
      EXPECT_EQ(group->sum_memory(sizes.sums).data != nullptr, can);
      for (int sum = 0; sum < 2; ++sum) {
        const TensorView x = workspace.take_sum(DType::fp32, {3});
        std::fill_n(x.as<float>(), 3, static_cast<float>(members.rank() + 1 + sum));
        group->all_reduce(x);
        EXPECT_EQ(x.as<float>()[2], 3.0f + 2 * static_cast<float>(sum));
      }
    });
    for (const char* call : {"open window 0", "close window 1", "sum in window 0"})
      EXPECT_EQ(std::ranges::count(nccl->log(), call), !can ? 0 : call[0] == 's' ? 2 : 1) << call;
  }
}

TEST(NcclGroups, OneFaultIsFoundAmongSeveralGroupsAndNoneAfterTheirEnd) {
  const auto nccl = std::make_shared<FakeNccl>();
  run_transports(1, [&](Transport& members) {
    CpuDevice device("GPU-a");
    NcclGroups groups(nccl, GpuTransport::automatic);
    const std::vector<int> ranks{3};
    auto first = groups.make(members, ranks, device), second = groups.make(members, ranks, device);
    EXPECT_FALSE(groups.fault());
    nccl->break_in_background(FakeNccl::remote_error);
    EXPECT_THAT(groups.fault().value_or(""), HasSubstr("world ranks 3"));
    first.reset();
    second.reset();
    EXPECT_FALSE(groups.fault());
  });
}

}  // namespace

}  // namespace maniple
