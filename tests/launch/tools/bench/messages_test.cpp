#include "adds_one.hpp"

#include <kernels/factory/make_backend.hpp>
#include <launch/tools/bench/messages.hpp>
#include <support/thread_world.hpp>

#include <gtest/gtest.h>

namespace maniple {
namespace {

constexpr CommOp every_op[] = {CommOp::all_reduce, CommOp::all_gather, CommOp::reduce_scatter,
                               CommOp::broadcast, CommOp::sendrecv};

TEST(Messages, ArriveAsTheyShouldForAnyRanksAndSizes) {
  for (const int ranks : {1, 2, 3, 4, 5})
    run_ranks(ranks, [&](World& world) {
      Backend backend = make_backend({.kind = BackendKind::cpu});
      for (const DType type : {DType::fp32, DType::bf16}) {
        const auto group = world.make_group(everyone(world), *backend.ops);
        Messages messages(*group, backend, type, 20'011);
        for (const CommOp op : every_op)
          for (const int64_t count : {1, 2, 3, 8, 1000, 20'011}) {
            if (ranks == 1 && op == CommOp::sendrecv) continue;  // a rank sends nothing to itself
            messages.run(op, count);                             // leaves other values behind
            EXPECT_EQ(messages.count_wrong(op, count), 0u)
                << name_of(op) << ' ' << count << ' ' << name_of(type) << ' ' << ranks;
          }
      }
    });
}

TEST(Messages, HaveExactSumsOverManyRanks) {
  run_ranks(130, [&](World& world) {
    Backend backend = make_backend({.kind = BackendKind::reference});
    const auto group = world.make_group(everyone(world), *backend.ops);
    Messages messages(*group, backend, DType::bf16, 700);
    EXPECT_EQ(messages.count_wrong(CommOp::reduce_scatter, 700), 0u);
  });
}

TEST(Messages, OneWrongElementIsCountedOnce) {
  run_ranks(2, [&](World& world) {
    Backend backend = make_backend({.kind = BackendKind::cpu});
    AddsOne group(world.make_group(everyone(world), *backend.ops));
    Messages messages(group, backend, DType::fp32, 1000);
    for (const CommOp op : every_op)
      EXPECT_EQ(messages.count_wrong(op, 1000), world.rank() == 1 ? 1u : 0u) << name_of(op);
  });
}

}  // namespace
}  // namespace maniple
