#include <kernels/factory/make_backend.hpp>
#include <launch/preflight/measurements.hpp>
#include <support/temp_directory.hpp>
#include <support/thread_world.hpp>

#include <gtest/gtest.h>

#include <set>

namespace maniple {
namespace {

const std::vector<RankLocation> four_nodes{{"a", 0, 0, 1}, {"b", 1, 0, 1}, {"c", 2, 0, 1}, {"d", 3, 0, 1}};

TEST(Judge, NamesASlowPair) {
  const Measurement latency{"latency", "us", false, 5, {0, 2, 11, 2.1}};
  const std::vector<Finding> findings = find_outliers({latency}, four_nodes);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].what, "latency: 11.00 us at rank 2 on c; the median is 2.10 us");
  EXPECT_NE(findings[0].remedy.find("--exclude=c"), std::string::npos);
}

TEST(Judge, LeavesWhatIsWithinItsToleranceAlone) {
  EXPECT_TRUE(find_outliers({{"latency", "us", false, 5, {0, 2, 10, 2.1}}}, four_nodes).empty());
  EXPECT_TRUE(find_outliers({{"nothing", "us", false, 5, {0, 0, 0, 0}}}, four_nodes).empty());
  EXPECT_TRUE(find_outliers({{"one", "us", false, 5, {7, 0, 0, 0}}}, four_nodes).empty());
}

TEST(Judge, OfTwoTheSlowOneIsWrong) {
  const std::vector<Finding> findings =
      find_outliers({{"storage", "GB/s", true, 3, {4, 1, 0, 0}}}, four_nodes);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].what, "storage: 1.00 GB/s at rank 1 on b; the median is 4.00 GB/s");
}

TEST(MeasurementsText, HasMedianBestAndWorst) {
  const std::string text = measurements_text(
      {{"storage", "GB/s", true, 3, {4, 1, 3, 2}}, {"one", "ms", false, 3, {5, 0, 0, 0}}}, four_nodes);
  EXPECT_NE(text.find("3.00 GB/s (best: 4.00 rank 0 on a; worst: 1.00 rank 1 on b)\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("    5.00 ms\n"), std::string::npos) << text;
}

TEST(Measure, CoversTheLayoutAtHand) {
  const TempDirectory tree;
  EngineOptions options;
  options.tensor_size = 2;
  options.model = MANIPLE_TEST_DATA "/models/tiny-qwen3";
  run_ranks(4, [&](World& world) {
    Backend backend = make_backend({.kind = BackendKind::cpu});
    const std::vector<Measurement> measured = measure(
        world, plan_job(world.locations(), options, {BackendKind::cpu}), backend, options.model, tree.path());
    std::set<std::string> names;
    for (const Measurement& series : measured) {
      EXPECT_EQ(series.by_rank.size(), 4u) << series.name;
      names.insert(series.name);
    }
    for (const char* name : {"all-reduce of 4 KiB, tensor groups", "all-reduce of 16 MiB, all ranks",
                             "memory of a rank", "reading the model, each node"})
      EXPECT_TRUE(names.contains(name)) << name;
    if (world.rank() != 0) return;
    for (const Measurement& series : measured)
      if (!series.name.ends_with("other nodes")) {
        EXPECT_GT(series.by_rank[series.name.starts_with("latency") ? 1 : 0], 0) << series.name;
      }
  });
  EXPECT_TRUE(std::filesystem::is_empty(tree.path()));
}

TEST(Measure, HasTheLinksOfEveryStageButTheLast) {
  EngineOptions options;
  options.tensor_size = 2;
  options.pipeline_size = 3;
  run_ranks(6, [&](World& world) {
    Backend backend = make_backend({.kind = BackendKind::cpu});
    for (const Measurement& series :
         measure(world, plan_job(world.locations(), options, {BackendKind::cpu}), backend, "", {}))
      for (size_t rank = 0; series.name == "1 MiB to the next stage" && rank < 6; ++rank)
        EXPECT_EQ(series.by_rank[rank] > 0, rank < 4) << rank;
  });
}

}  // namespace
}  // namespace maniple
