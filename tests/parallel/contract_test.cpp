// The contract over one process, over threads, and over a fake NCCL. mpi_contract_test.cpp runs it over MPI.
#include "contract.hpp"

#include <gtest/gtest.h>
#include <parallel/nccl/nccl_groups.hpp>
#include <parallel/self/self_world.hpp>
#include <support/cover.hpp>
#include <support/fake_nccl.hpp>
#include <support/thread_world.hpp>

#include <atomic>
#include <deque>
#include <thread>

namespace maniple {

namespace {

class SelfContract : public ::testing::TestWithParam<ContractCase> {};
class ThreadContract : public ::testing::TestWithParam<std::tuple<ContractCase, int>> {};

TEST_P(SelfContract, Holds) {
  SelfWorld world;
  GetParam().run(world);
}

TEST_P(ThreadContract, Holds) {
  const auto& [contract_case, ranks] = GetParam();
  run_ranks(ranks, contract_case.run);
}

// Every group over NCCL, also groups of one rank. Memory that NCCL cannot reach goes through the host.
class NcclContract : public ThreadContract {};
TEST_P(NcclContract, Holds) {
  const auto& [contract_case, ranks] = GetParam();
  const auto nccl = std::make_shared<FakeNccl>();
  std::deque<NcclGroups> groups;
  for (int rank = 0; rank < ranks; ++rank) groups.emplace_back(nccl, GpuTransport::nccl);
  run_ranks(ranks, contract_case.run, std::chrono::seconds(60),
            [&](int rank, std::unique_ptr<Transport>& members, std::span<const int> group, Ops& ops) {
              return groups[rank].make(*members, group, ops.device());
            });
  for (const std::string& call : nccl->log()) EXPECT_FALSE(call.starts_with("abort")) << call;
}

std::string case_name(const auto& info) {
  if constexpr (requires { info.param.name; })
    return info.param.name;
  else
    return std::get<0>(info.param).name + "_" + std::to_string(std::get<1>(info.param)) + "_ranks";
}

// Of each case some numbers of ranks.
std::vector<std::tuple<ContractCase, int>> cases_with(const std::vector<int>& ranks, size_t count) {
  std::vector<std::tuple<ContractCase, int>> list;
  for (const ContractCase& contract_case : contract_cases())
    for (const int number : testing::sampled(ranks, count)) list.emplace_back(contract_case, number);
  return list;
}

INSTANTIATE_TEST_SUITE_P(parallel, SelfContract, ::testing::ValuesIn(contract_cases()),
                         [](const auto& test) { return case_name(test); });
INSTANTIATE_TEST_SUITE_P(parallel, ThreadContract,
                         ::testing::ValuesIn(cases_with({1, 2, 3, 4, 5, 6, 7, 8}, 3)),
                         [](const auto& test) { return case_name(test); });
INSTANTIATE_TEST_SUITE_P(parallel, NcclContract, ::testing::ValuesIn(cases_with({1, 2, 3, 4, 7}, 2)),
                         [](const auto& test) { return case_name(test); });

TEST(ThreadWorld, RethrowsTheFirstFailureAndFreesTheOthers) {
  std::atomic<int> freed = 0;
  const auto fails_on_one = [&](World& world) {
    if (world.rank() == 1) throw std::runtime_error("rank 1 had enough");
    try {
      world.barrier();
    } catch (const Error&) {
      ++freed;
      throw;
    }
  };
  try {
    run_ranks(3, fails_on_one);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "rank 1 had enough");
  }
  EXPECT_EQ(freed, 2);
}

TEST(ThreadWorld, ACollectiveThatOthersDoNotJoinEndsWithAnError) {
  const auto one_rank_waits = [](World& world) {
    if (world.rank() == 0) world.barrier();
  };
  EXPECT_THROW(run_ranks(2, one_rank_waits, std::chrono::milliseconds(50)), Error);
}

TEST(ThreadWorld, RanksThatDisagreeAboutASizeGetAnError) {
  const auto disagree = [](World& world) {
    ReferenceBackend backend;
    const auto group = world.make_group(std::vector<int>{0, 1}, backend.ops);
    Tensor x(backend.device, DType::fp32, {world.rank() == 0 ? 4 : 5});
    group->all_reduce(x);
  };
  EXPECT_THROW(run_ranks(2, disagree), Error);
}

}  // namespace

}  // namespace maniple
