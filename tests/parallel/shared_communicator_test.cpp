// Sums through shared memory: the contract of Communicator in every way, and the bits of the tree against
// plain loops. The ranks of most tests share one mapping, where the thread sanitizer sees them.
#include "contract.hpp"

#include <gtest/gtest.h>
#include <kernels/factory/make_backend.hpp>
#include <parallel/shared_communicator.hpp>
#include <parallel/subset_transport.hpp>
#include <support/cover.hpp>
#include <support/thread_world.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>
#include <thread>

namespace maniple {
namespace {

SumWays always(SumWay way) {
  SumWays ways;
  ways.of_size.fill(way);
  return ways;
}

// --- the contract; every rank has a mapping of its own ---

class SharedContract : public ::testing::TestWithParam<std::tuple<ContractCase, int, SumWay>> {};

TEST_P(SharedContract, Holds) {
  const auto& [contract_case, ranks, asked] = GetParam();
  const SumWay way = asked;
  run_ranks(ranks, contract_case.run, std::chrono::seconds(60),
            [&](int, std::unique_ptr<Transport>& members, std::span<const int>,
                Ops& ops) -> std::unique_ptr<Communicator> {
              if (!ops.device().shares_host_memory()) return nullptr;
              SharedMemory memory = share_memory(*members, SharedCommunicator::bytes_of_rank);
              EXPECT_NE(memory, nullptr);
              return std::make_unique<SharedCommunicator>(std::move(members), ops, std::move(memory),
                                                          Backoff::Spin::no, always(way));
            });
}

std::string name_of_case(const ::testing::TestParamInfo<SharedContract::ParamType>& test) {
  const auto& [contract_case, ranks, way] = test.param;
  return fmt::format("{}_{}_ranks_{}", contract_case.name, ranks,
                     way == SumWay::one_shot ? "one_shot" : "two_shot");
}
const std::vector<SumWay> both_ways{SumWay::one_shot, SumWay::two_shot};

// Of each case both ways, in groups of other sizes.
std::vector<std::tuple<ContractCase, int, SumWay>> shared_cases() {
  std::vector<std::tuple<ContractCase, int, SumWay>> list;
  for (const ContractCase& contract_case : contract_cases())
    for (const SumWay way : both_ways)
      for (const int ranks : testing::sampled<int>({2, 3, 5, 8}, 1))
        list.emplace_back(contract_case, ranks, way);
  return list;
}
INSTANTIATE_TEST_SUITE_P(parallel, SharedContract, ::testing::ValuesIn(shared_cases()), name_of_case);

// --- bits; all ranks in one mapping ---

SharedMemory one_mapping(int ranks) {
  const size_t bytes = static_cast<size_t>(ranks) * SharedCommunicator::bytes_of_rank;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
  std::fill_n(memory, bytes, std::byte{0});
  return {memory, [](std::byte* bytes_of_all) { std::free(bytes_of_all); }};
}

// f(group, backend) on threads.
template <typename F>
void run_group(int ranks, SumWay way, F f, SharedMemory memory = nullptr) {
  if (!memory) memory = one_mapping(ranks);
  run_ranks(ranks, [&](World& world) {
    const Backend backend = make_backend({.kind = BackendKind::cpu});
    std::vector<int> all(static_cast<size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    SharedCommunicator group(std::make_unique<SubsetTransport>(world.transport(), all), *backend.ops, memory,
                             Backoff::Spin::no, always(way));
    f(group, *backend.device);
  });
}

float rounded(DType dtype, float value) {
  return dtype == DType::bf16 ? static_cast<float>(BFloat16(value)) : value;
}

// Element i of a rank's tensor: of magnitudes for which another order of additions gives other bits.
float value_of(DType dtype, uint32_t seed, int rank, int64_t i) {
  uint32_t bits =
      seed ^ (static_cast<uint32_t>(rank) * 0x9e3779b9u) ^ (static_cast<uint32_t>(i) * 0x85ebca6bu);
  bits = (bits ^ (bits >> 16)) * 0x7feb352du;
  bits = (bits ^ (bits >> 15)) * 0x846ca68bu;
  const float mantissa = static_cast<float>(bits >> 5 & 0xffff) * 0x1p-15f - 1.0f;
  return rounded(dtype, std::ldexp(mantissa, static_cast<int>(bits >> 27) - 16));
}

float sum_of(DType dtype, uint32_t seed, int first, int last, int64_t i) {
  if (last - first == 1) return value_of(dtype, seed, first, i);
  int left = 1;
  while (2 * left < last - first) left *= 2;
  return rounded(dtype,
                 sum_of(dtype, seed, first, first + left, i) + sum_of(dtype, seed, first + left, last, i));
}

float get(ConstTensorView x, int64_t i) {
  return x.dtype == DType::fp32 ? x.as<float>()[i] : static_cast<float>(x.as<BFloat16>()[i]);
}
void set(TensorView x, int64_t i, float value) {
  if (x.dtype == DType::fp32)
    x.as<float>()[i] = value;
  else
    x.as<BFloat16>()[i] = BFloat16(value);
}
void fill(TensorView x, uint32_t seed, int rank) {
  for (int64_t i = 0; i < x.shape.elements(); ++i) set(x, i, value_of(x.dtype, seed, rank, i));
}
// Elements of x that are not those of the sum from element `first` on.
int64_t wrong_sums(ConstTensorView x, uint32_t seed, int ranks, int64_t first = 0) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < x.shape.elements(); ++i)
    wrong += get(x, i) != sum_of(x.dtype, seed, 0, ranks, first + i);
  return wrong;
}

// The same on every rank.
std::vector<int64_t> random_rows(std::minstd_rand& random, int ranks, int64_t most) {
  std::vector<int64_t> rows;
  for (int rank = 0; rank < ranks; ++rank)
    rows.push_back(random() % 4 == 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint64_t>(most)));
  return rows;
}

void expect_all_reduce(Communicator& group, Device& device, DType dtype, int64_t count, uint32_t seed) {
  Tensor x(device, dtype, {count});
  fill(x, seed, group.rank());
  group.all_reduce(x);
  EXPECT_EQ(wrong_sums(x, seed, group.size()), 0) << count << " elements, seed " << seed;
}

void expect_reduce_scatter(Communicator& group, Device& device, DType dtype, std::span<const int64_t> rows,
                           int64_t width, uint32_t seed) {
  const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const auto mine = static_cast<size_t>(group.rank());
  Tensor in(device, dtype, {all, width}), out(device, dtype, {rows[mine], width});
  fill(in, seed, group.rank());
  group.reduce_scatterv(in, out, rows);
  const int64_t first = std::accumulate(rows.begin(), rows.begin() + group.rank(), int64_t{0});
  EXPECT_EQ(wrong_sums(out, seed, group.size(), first * width), 0) << width << " columns, seed " << seed;
}

void expect_all_gather(Communicator& group, Device& device, std::span<const int64_t> rows, uint32_t seed) {
  const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  Tensor in(device, DType::uint8, {rows[static_cast<size_t>(group.rank())]}),
      out(device, DType::uint8, {all});
  const auto byte = [&](int rank, int64_t i) { return static_cast<uint8_t>(seed + 31 * rank + i * (i % 7)); };
  for (int64_t i = 0; i < in.shape()[0]; ++i) in.view().as<uint8_t>()[i] = byte(group.rank(), i);
  group.all_gatherv(in, out, rows);
  int64_t wrong = 0, at = 0;
  for (int rank = 0; rank < group.size(); ++rank)
    for (int64_t i = 0; i < rows[static_cast<size_t>(rank)]; ++i, ++at)
      wrong += out.view().as<uint8_t>()[at] != byte(rank, i);
  EXPECT_EQ(wrong, 0) << all << " bytes, seed " << seed;
}

class SharedSums : public ::testing::TestWithParam<std::tuple<int, SumWay>> {
 protected:
  const int ranks = std::get<0>(GetParam());
  const SumWay way = std::get<1>(GetParam());
  const uint32_t seed = std::random_device{}();
};

INSTANTIATE_TEST_SUITE_P(parallel, SharedSums,
                         ::testing::ValuesIn(testing::each_value(std::vector{1, 2, 3, 4, 5, 6, 7, 8},
                                                                 both_ways)));

TEST_P(SharedSums, HaveTheBitsOfTheTreeForEverySize) {
  run_group(ranks, way, [&](Communicator& group, Device& device) {
    std::minstd_rand random(seed);
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      for (const int64_t count : {1, 2, 3, 63, 64, 65, 4099, 65535, 65536, 65537, 131071})
        expect_all_reduce(group, device, dtype, count, random());
      expect_all_reduce(group, device, dtype, 1 + static_cast<int64_t>(random() % 600'000), random());
    }
  });
}

TEST_P(SharedSums, OfManyMegabytesHaveTheBitsOfTheTree) {
  run_group(ranks, way, [&](Communicator& group, Device& device) {
    expect_all_reduce(group, device, DType::fp32, (int64_t{9} << 18) - static_cast<int64_t>(seed % 100),
                      seed);
  });
}

TEST_P(SharedSums, OfUnevenRowsGoToTheirRanks) {
  run_group(ranks, way, [&](Communicator& group, Device& device) {
    std::minstd_rand random(seed);
    for (int round = 0; round < 12; ++round) {
      const std::vector<int64_t> rows = random_rows(random, ranks, round % 3 == 0 ? 400'000 : 3000);
      const auto width = static_cast<int64_t>(1 + random() % 7);
      const DType dtype = round % 2 == 0 ? DType::fp32 : DType::bf16;
      const uint32_t values = random();
      expect_all_gather(group, device, rows, values);
      if (round % 3 != 0) expect_reduce_scatter(group, device, dtype, rows, width, values);
    }
  });
}

// Ranks come late, and operations and sizes change all the time. SUM_EPOCHS=100000 runs more of them.
TEST_P(SharedSums, HoldOverManyEpochsWithRandomDelays) {
  const char* const wanted = std::getenv("SUM_EPOCHS");
  const int operations = wanted ? std::atoi(wanted) : 4000;
  run_group(ranks, way, [&](Communicator& group, Device& device) {
    std::minstd_rand random(seed), delays(seed + static_cast<uint32_t>(group.rank()) + 1);
    for (int operation = 0; operation < operations && !::testing::Test::HasFailure(); ++operation) {
      if (delays() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 300));
      const uint32_t values = random();
      const auto kind = random() % 8;
      if (kind == 0)
        expect_all_gather(group, device, random_rows(random, ranks, 40), values);
      else if (kind == 1)
        expect_reduce_scatter(group, device, DType::fp32, random_rows(random, ranks, 20), 3, values);
      else
        expect_all_reduce(group, device, DType::fp32, static_cast<int64_t>(random() % 30), values);
    }
  });
}

TEST(SharedGroup, ARankThatFailsEndsTheWaitsOfTheOthers) {
  std::atomic<int> freed = 0;
  const auto fails_in_an_epoch = [&](Communicator& group, Device& device) {
    Tensor x(device, DType::fp32, {300'000});
    try {
      group.all_reduce(x);
      if (group.rank() == 1) throw std::runtime_error("rank 1 had enough");
      group.all_reduce(x);
    } catch (const Error&) {
      ++freed;
      throw;
    }
  };
  for (const SumWay way : {SumWay::one_shot, SumWay::two_shot}) {
    EXPECT_THROW(run_group(3, way, fails_in_an_epoch), std::runtime_error);
    EXPECT_EQ(freed.exchange(0), 2);
  }
}

TEST(SharedGroup, RanksThatDisagreeAboutASizeGetAnError) {
  const auto disagree = [](Communicator& group, Device& device) {
    Tensor x(device, DType::fp32, {group.rank() == 0 ? 400 : 500});
    group.all_reduce(x);
  };
  EXPECT_THROW(run_group(2, SumWay::one_shot, disagree), Error);
  EXPECT_THROW(run_group(2, SumWay::two_shot, disagree), Error);
}

TEST(SharedGroup, AllRanksChooseTheSameWaysInShortTime) {
  for (const int ranks : {2, 3, 8})
    for (const bool messages : {true, false}) {
      std::vector<std::string> chosen(static_cast<size_t>(ranks));
      run_group(ranks, SumWay::messages, [&](SharedCommunicator& group, Device& device) {
        group.choose_ways(messages);
        chosen[static_cast<size_t>(group.rank())] = group.sums();
        expect_all_reduce(group, device, DType::fp32, 5000, 1);
      });
      for (const std::string& ways : chosen) EXPECT_EQ(ways, chosen[0]);
      EXPECT_TRUE(messages || chosen[0].find("messages") == std::string::npos) << chosen[0];
    }
}

TEST(SumWays, OfASizeAreThoseOfTheNextLargerOneMeasured) {
  SumWays ways;
  ways.of_size = {SumWay::one_shot, SumWay::one_shot, SumWay::two_shot,
                  SumWay::messages, SumWay::messages, SumWay::two_shot};
  EXPECT_EQ(ways.of(1), SumWay::one_shot);
  EXPECT_EQ(ways.of(16 << 10), SumWay::one_shot);
  EXPECT_EQ(ways.of((16 << 10) + 1), SumWay::two_shot);
  EXPECT_EQ(ways.of(1 << 20), SumWay::messages);
  EXPECT_EQ(ways.of(size_t{1} << 30), SumWay::two_shot);
  EXPECT_EQ(ways.text(),
            "shared memory (one-shot up to 16 KiB, two-shot up to 64 KiB, messages up to 1 MiB, two-shot)");
  EXPECT_EQ(SumWays{}.text(), "messages");
}

// --- the memory ---

std::vector<std::string> our_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (entry.path().filename().native().starts_with("maniple-")) names.push_back(entry.path());
  return names;
}

TEST(SharedMemory, IsZeroedSharedAndHasNoNameAnyMore) {
  run_transports(3, [](Transport& transport) {
    const SharedMemory memory = share_memory(transport, 4096);
    ASSERT_NE(memory, nullptr);
    const auto mine = memory.get() + 4096 * transport.rank();
    EXPECT_EQ(std::count(mine, mine + 4096, std::byte{0}), 4096);
    std::fill_n(mine, 4096, std::byte{static_cast<unsigned char>(transport.rank() + 1)});
    barrier(transport);
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(memory.get()[4096 * rank + 4095], std::byte(rank + 1));
    barrier(transport);
  });
}

TEST(SharedMemory, ThatDoesNotFitIsNullOnAllRanks) {
  const std::vector<std::string> before = our_files();
  run_transports(3, [](Transport& transport) {
    // Only the last rank's part does not fit.
    EXPECT_EQ(share_memory(transport, transport.rank() == 2 ? size_t{1} << 50 : 4096), nullptr);
  });
  EXPECT_EQ(our_files(), before);
}

}  // namespace
}  // namespace maniple
