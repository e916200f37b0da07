#include <launch/tools/bench/roofline.hpp>
#include <support/temp_directory.hpp>

#include <gtest/gtest.h>

#include <fstream>

namespace maniple {
namespace {

const Roofline two_ranks{{{1e12, 20e9}, {3e12, 30e9}}};

Roofline times(const Roofline& roofline, double flops, double read_bytes) {
  Roofline changed = roofline;
  for (Ceilings& rank : changed.ranks) rank = {rank.flops * flops, rank.read_bytes * read_bytes};
  return changed;
}

TEST(Roofline, DriftIsThatOfTheSumThatChangedMore) {
  EXPECT_DOUBLE_EQ(two_ranks.sum().flops, 4e12);
  EXPECT_DOUBLE_EQ(two_ranks.sum().read_bytes, 50e9);
  EXPECT_DOUBLE_EQ(drift(two_ranks, two_ranks), 0);
  EXPECT_NEAR(drift(two_ranks, times(two_ranks, 1.02, 0.91)), -0.09, 1e-12);
  EXPECT_NEAR(drift(two_ranks, times(two_ranks, 1.1, 0.91)), 0.1, 1e-12);
}

TEST(Roofline, ADriftAboveFivePercentMakesAResultInvalid) {
  for (const auto& [change, quality] : {std::pair(0.96, Quality::valid), std::pair(0.91, Quality::invalid)}) {
    BenchResult result;
    result.evidence.results = {{"a", {100, 99, 101}}};
    add_probes(result, two_ranks, times(two_ranks, 1, change));
    const Verdict verdict = judge(result.evidence);
    EXPECT_EQ(verdict.quality, quality);
    EXPECT_EQ(verdict.reason, change < 0.95 ? "probe drift 9.0 %, at most 5 % wanted" : "");
    EXPECT_DOUBLE_EQ(result.numbers["gemm_tflop_s"], 4);
    EXPECT_DOUBLE_EQ(result.numbers["read_gb_s"], 50);
    EXPECT_NEAR(result.numbers["probe_drift"], change - 1, 1e-12);
    ASSERT_EQ(result.roofline.size(), 4U);
    EXPECT_STREQ(result.roofline[3].when, "after");
    EXPECT_EQ(result.roofline[3].rank, 1);
    EXPECT_DOUBLE_EQ(result.roofline[3].read_bytes_per_s, change * 30e9);
  }
}

TEST(Utilisation, IsThatOfAHandCalculation) {
  ModelCost cost;
  cost.layer_parameters = 1'000'000;
  cost.head_parameters = 50'000;
  cost.weight_bytes = 2'100'000;
  cost.kv_bytes = 512;
  cost.attention_flops = 1'024;
  BenchResult result;
  const StepWork work{.steps = 40, .tokens = 1'000, .sampled = 800, .context = 90'000, .attended = 95'000};
  result.work = {{work, 0.5}, {work, 0.25}, {work, 1}};
  result.last_line = "throughput  out 1 tok/s\n";
  const Roofline one{{{10e9, 1e9}}};
  add_probes(result, one, times(one, 1.012, 1));
  add_utilisation(result, cost, one);
  const double flops = 2e6 * 1'000 + 1e5 * 800 + 1'024. * 95'000, bytes = 40 * 2.1e6 + 512. * 92'000;
  EXPECT_DOUBLE_EQ(result.numbers["mfu"], flops / 0.5 / 10e9);
  EXPECT_DOUBLE_EQ(result.numbers["mbu"], bytes / 0.5 / 1e9);
  ASSERT_EQ(result.samples.size(), 2U);
  EXPECT_EQ(result.samples[0].name, "mfu");
  EXPECT_DOUBLE_EQ(result.samples[1].values[1], bytes / 0.25 / 1e9);
  EXPECT_EQ(result.last_line,
            "throughput  out 1 tok/s | MFU 43.55 % of 0.01 TFLOP/s  MBU 26.22 % of 1.00 GB/s (probe drift "
            "1.2 %)\n");
}

TEST(CacheShare, FollowsCachesThreadsAndRanks) {
  const TempDirectory root;
  EXPECT_EQ(cache_share(8, 1, root.path()), 32U << 20);  // nobody tells
  const std::filesystem::path cpus = root / "sys/devices/system/cpu", cache = cpus / "cpu0/cache/index3";
  std::filesystem::create_directories(cache);
  std::ofstream(cache / "size") << "32768K\n";
  std::ofstream(cache / "shared_cpu_list") << "0-7,64-71\n";
  std::ofstream(cpus / "online") << "0-127\n";
  // Eight caches of 32 MiB with 16 CPUs each.
  EXPECT_EQ(cache_share(16, 8, root.path()), 32U << 20);
  EXPECT_EQ(cache_share(1, 1, root.path()), 32U << 20);
  EXPECT_EQ(cache_share(32, 4, root.path()), 64U << 20);
  EXPECT_EQ(cache_share(8, 16, root.path()), 16U << 20);
  EXPECT_EQ(cache_share(128, 1, root.path()), 256U << 20);
}

}  // namespace
}  // namespace maniple
