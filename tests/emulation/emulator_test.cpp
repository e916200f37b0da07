#include <device/primitives.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace maniple {
namespace {

using namespace device;
using ::testing::HasSubstr;

// The emulator's message for a wrong kernel.
std::string error_of(const std::function<void()>& kernel, int threads = 64, uint64_t seed = 2) {
  emulation::Order order{seed};
  try {
    emulation::run({2, 1, 1}, threads, 256, order, kernel);
  } catch (const emulation::EmulationError& error) {
    return error.what();
  }
  return "no error";
}

void wait_in(PreviousKernel previous, int warps) {
  if (warp_index() < warps) wait_for(previous);
}
TEST(Emulator, ReportsAThreadThatDoesNotWaitForTheKernelBefore) {
  emulation::Order order;
  EXPECT_NO_THROW(launch_early(wait_in, {3}, 64, 0, &order, 2));
  EXPECT_THROW(launch_early(wait_in, {3}, 64, 0, &order, 1), emulation::EmulationError);
}

TEST(Emulator, ReportsABarrierThatNotAllThreadsReach) {
  const std::string left_early = error_of([] {
    if (thread_index() < 10) return;
    synchronize_block();
  });
  EXPECT_THAT(left_early, HasSubstr("10 of 64 threads returned, 54 wait at emulator_test.cpp:"));
  EXPECT_THAT(left_early, HasSubstr("block ("));
  EXPECT_THAT(left_early, HasSubstr("order 2"));
  const std::string elsewhere = error_of([] {
    if (thread_index() < 32)
      synchronize_block();
    else
      synchronize_block();
  });
  EXPECT_THAT(elsewhere, HasSubstr("while others wait at emulator_test.cpp:"));
}

TEST(Emulator, ReportsLanesThatMissAnOperationOfTheirWarp) {
  const std::string missing = error_of([] {
    if (lane_index() != 7) shuffle(1.0f, 0);
  });
  EXPECT_THAT(missing, HasSubstr("2 of 64 threads returned, 62 wait at emulator_test.cpp:"));
  const std::string different = error_of([] {
    if (lane_index() < 16)
      shuffle_xor(1.0f, 1);
    else
      ballot(true);
  });
  EXPECT_THAT(different, HasSubstr("while others wait at emulator_test.cpp:"));
}

TEST(Emulator, ShowsAMissingBarrierInSomeOrder) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    emulation::Order order{seed};
    emulation::run({}, 64, 256, order, [&] {
      auto* const shared = reinterpret_cast<int*>(shared_memory());
      shared[thread_index()] = thread_index();
      if (shared[63 - thread_index()] != 63 - thread_index()) ++wrong;
    });
  }
  EXPECT_GT(wrong, 0);
}

TEST(Emulator, SpoilsTheDestinationOfACopyUntilItIsWaitedFor) {
  alignas(16) const float from[4] = {1, 2, 3, 4};
  emulation::Order order;
  std::vector<float> before, after, pending;
  emulation::run({}, 32, 32 * 16, order, [&] {
    auto* const mine = reinterpret_cast<float*>(shared_memory()) + 4 * thread_index();
    copy_async(mine, from);
    commit_copies();
    before.push_back(mine[0]);
    wait_copies<1>();
    pending.push_back(mine[0]);
    wait_copies<0>();
    after.push_back(mine[0]);
  });
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_TRUE(std::isnan(before[i]) && std::isnan(pending[i]));
    EXPECT_EQ(after[i], 1);
  }
}

TEST(Emulator, SharedMemoryBeginsAsNanInEveryBlock) {
  emulation::Order order;
  int clean = 0;
  emulation::run({5, 2, 1}, 32, 128, order, [&] {
    auto* const mine = reinterpret_cast<float*>(shared_memory()) + thread_index();
    if (!std::isnan(*mine)) ++clean;
    *mine = 1;
  });
  EXPECT_EQ(clean, 0);
}

TEST(Emulator, RunsEveryBlockOnceAndThreadsInAnOrderThatTheSeedDecides) {
  const auto order_of = [](uint64_t seed) {
    emulation::Order order{seed};
    std::vector<int> came;
    emulation::run({3, 2, 2}, 64, 0, order, [&] {
      const Grid block = block_index();
      came.push_back(((block.z * 2 + block.y) * 3 + block.x) * 64 + thread_index());
    });
    return came;
  };
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const std::vector<int> came = order_of(seed);
    EXPECT_EQ(came, order_of(seed));
    EXPECT_EQ(std::set<int>(came.begin(), came.end()).size(), 12u * 64u);
    orders.insert(came);
  }
  EXPECT_EQ(orders.size(), 6u);  // the ascending and the descending one come twice
}

TEST(Emulator, RefusesMisalignedVectorsAndCopies) {
  alignas(16) static const float from[8] = {};
  EXPECT_THAT(error_of([] { load_vector(from + 1); }), HasSubstr("no multiple of 16"));
  EXPECT_THAT(error_of([] { copy_async(shared_memory() + 8, from); }), HasSubstr("no multiples of 16"));
  EXPECT_THAT(error_of([] { copy_async(shared_memory() + 256, from); }),
              HasSubstr("outside of the shared memory"));
  EXPECT_THAT(error_of([] {}, 48), HasSubstr("blocks of 48 threads"));
}

}  // namespace
}  // namespace maniple
