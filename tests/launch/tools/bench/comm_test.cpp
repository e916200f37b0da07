#include "adds_one.hpp"

#include <kernels/factory/make_backend.hpp>
#include <launch/tools/bench/comm.hpp>
#include <support/thread_world.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <set>

namespace maniple {
namespace {

BenchOptions small_messages(std::vector<CommOp> ops) {
  BenchOptions options;
  options.ops = std::move(ops);
  options.end = 64;
  options.factor = 4;
  options.quiet = true;
  return options;
}

TEST(CommBandwidth, IsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(1'048'576, 210e-6), 1'048'576 / 210e-6 / 1e9);
  EXPECT_DOUBLE_EQ(bus_factor(CommOp::all_reduce, 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor(CommOp::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(CommOp::all_reduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(CommOp::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(CommOp::reduce_scatter, 2), 0.5);
  EXPECT_DOUBLE_EQ(bus_factor(CommOp::broadcast, 8), 1);
  EXPECT_DOUBLE_EQ(bus_factor(CommOp::sendrecv, 8), 1);
}

TEST(CommRows, AreThoseComputedByHand) {
  CommRow row{.axis = GroupAxis::tensor,
              .op = CommOp::all_reduce,
              .ranks = 4,
              .bytes = 1'048'576,
              .seconds = {210e-6, 208.1e-6, 213.5e-6},
              .wrong = 0};
  EXPECT_EQ(table_line(row),
            "      1048576     262144 float32  all_reduce         210.0  [208.1, 213.5]          4.99    "
            "7.49  0\n");
  const nlohmann::ordered_json json = row_json(row);
  EXPECT_EQ(json["operation"], "all_reduce");
  EXPECT_EQ(json["group"], "tensor");
  EXPECT_DOUBLE_EQ(json["time_us"], 210);
  EXPECT_NEAR(json["algbw_gb_s"], 4.99322, 1e-5);
  EXPECT_NEAR(json["busbw_gb_s"], 7.48983, 1e-5);
  EXPECT_EQ(json["wrong"], 0);

  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  row = {.axis = GroupAxis::data,
         .op = CommOp::all_gather,
         .type = DType::bf16,
         .ranks = 2,
         .bytes = 8,
         .seconds = {40e-6, none, none}};
  EXPECT_EQ(table_line(row),
            "            8          4 bfloat16 all_gather         40.00  [-, -]                0.0002  "
            "0.0001  N/A\n");
  EXPECT_NE(row_json(row).dump().find(R"("ci_low_us":null)"), std::string::npos);
  EXPECT_TRUE(row_json(row)["wrong"].is_null());
}

TEST(CommBench, AWrongElementMakesTheResultInvalid) {
  run_ranks(3, [&](World& world) {
    Backend backend = make_backend({.kind = BackendKind::cpu});
    const BenchOptions options = small_messages({});
    RankActivity activity;
    BenchJob job(world, options, activity);
    AddsOne group(world.make_group(everyone(world), *backend.ops));
    Messages messages(group, backend, DType::fp32, 64);
    const auto row = measure_row(job, messages, GroupAxis::world, CommOp::all_reduce, 64);
    ASSERT_TRUE(row && row->wrong);
    EXPECT_EQ(*row->wrong, 1u);
    EXPECT_GT(row->seconds.median, 0);
    const Verdict verdict = judge({.results = {{"row", row->seconds}}, .wrong = *row->wrong});
    EXPECT_EQ(verdict.reason, "1 wrong value, 0 wanted");
  });
}

TEST(CommBench, MeasuresTheGroupsOfTheLayout) {
  run_ranks(4, [&](World& world) {
    Backend backend = make_backend({.kind = BackendKind::cpu});
    BenchOptions options = small_messages({CommOp::all_reduce, CommOp::sendrecv});
    options.engine.tensor_size = 2;
    options.engine.backend.kind = BackendKind::cpu;
    RankActivity activity;
    BenchJob job(world, options, activity);
    const auto result =
        bench_comm(job, plan_job(world.locations(), options.engine, options.engine.backend), backend);
    ASSERT_TRUE(result);
    std::multiset<std::string> rows;
    for (const auto& row : result->numbers["rows"]) {
      rows.insert(fmt::format("{} {} of {}, {} bytes", row["group"].get<std::string>(),
                              row["operation"].get<std::string>(), row["ranks"].get<int>(),
                              row["bytes"].get<int>()));
      EXPECT_EQ(row["wrong"], 0);
    }
    EXPECT_EQ(rows.size(), 3u * 2 * 2);
    EXPECT_EQ(rows.count("tensor all_reduce of 2, 8 bytes"), 1u);
    EXPECT_EQ(rows.count("data sendrecv of 2, 32 bytes"), 1u);
    EXPECT_EQ(rows.count("world all_reduce of 4, 32 bytes"), 1u);
    EXPECT_EQ(result->numbers["fom"]["metric"], "busbw_tensor_all_reduce_32B");
    EXPECT_EQ(result->evidence.results.size(), rows.size());
    EXPECT_EQ(result->last_line.find("# out of bounds values: 0 OK     fom: busbw_tensor_all_reduce_32B = "),
              0u);
  });
}

TEST(CommBench, SameRanksAreMeasuredOnceAndOneRankHasNothingToExchange) {
  const auto rows_of = [](int ranks, int tensor) {
    std::atomic<size_t> rows = 0;
    run_ranks(ranks, [&](World& world) {
      Backend backend = make_backend({.kind = BackendKind::cpu});
      BenchOptions options = small_messages({CommOp::broadcast});
      options.engine.tensor_size = tensor;
      options.engine.backend.kind = BackendKind::cpu;
      options.end = options.begin;
      RankActivity activity;
      BenchJob job(world, options, activity);
      const auto result =
          bench_comm(job, plan_job(world.locations(), options.engine, options.engine.backend), backend);
      if (world.rank() == 0 && result) rows = result->evidence.results.size();
    });
    return rows.load();
  };
  EXPECT_EQ(rows_of(2, 2), 1u);  // tensor and world are the same ranks
  EXPECT_EQ(rows_of(2, 1), 1u);
  EXPECT_EQ(rows_of(1, 1), 0u);
}

}  // namespace
}  // namespace maniple
