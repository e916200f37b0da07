#include <kernels/factory/make_backend.hpp>
#include <launch/tools/bench/host_step.hpp>
#include <launch/tools/bench/kernels.hpp>
#include <support/thread_world.hpp>

#include <gtest/gtest.h>

namespace maniple {
namespace {

TEST(HostStep, IsTimedOnRankZeroOfAnyGrid) {
  for (const auto& [ranks, tensor] : {std::pair{1, 1}, {4, 2}, {4, 4}, {2, 1}})
    run_ranks(ranks, [&](World& world) {
      Backend backend = make_backend({.kind = BackendKind::cpu});
      RankActivity activity;
      HostStep step(world, tensor, *backend.ops, activity);
      for (const uint32_t sequences : {1U, 8U, 128U})
        for (const uint32_t steps : {1U, 20U}) {
          const uint64_t before = activity.steps;
          const double seconds = step.seconds(sequences, steps);
          // Prompts, then a decode step more than there are times between two of them.
          EXPECT_EQ(activity.steps - before, steps + 2);
          EXPECT_TRUE(world.rank() == 0 ? seconds > 0 && seconds < 1 : seconds == 0) << seconds;
          world.barrier();
        }
    });
}

TEST(HostStep, HasARowWithoutFlops) {
  const Kernel kernel{{KernelPart::host, 8}, 2, 1, {40e-6, 38e-6, 42e-6}};
  const Ceilings ceilings{1e9, 1e9};
  EXPECT_EQ(table_line(kernel, ceilings),
            "     host       8        -      40.00  [38.00, 42.00]              -        -  -\n");
  EXPECT_EQ(kernel_json(kernel, ceilings)["part"], "host");
  EXPECT_TRUE(kernel_json(kernel, ceilings)["of_probe"].is_null());
  EXPECT_STREQ(row_of(kernel).part, "host");
}

}  // namespace
}  // namespace maniple
