#include <kernels/factory/make_backend.hpp>
#include <launch/tools/bench/kernels.hpp>
#include <launch/tools/bench/model_shard.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace maniple {
namespace {

TEST(KernelCases, LeaveOutContextsThatTheModelCannotHave) {
  const auto count = [](int64_t positions, KernelPart part) {
    const std::vector<KernelCase> cases = kernel_cases(positions);
    return std::ranges::count(cases, part, &KernelCase::part);
  };
  for (const int64_t positions : {64, 128, 4096, 8192}) {
    EXPECT_EQ(count(positions, KernelPart::layer), 19);
    EXPECT_EQ(count(positions, KernelPart::head), 9);
  }
  EXPECT_EQ(count(64, KernelPart::decode) + count(64, KernelPart::prefill), 0);
  EXPECT_EQ(count(128, KernelPart::prefill), 1);
  EXPECT_EQ(count(4096, KernelPart::decode), 12);
  EXPECT_EQ(count(4096, KernelPart::prefill), 6);
  EXPECT_EQ(count(8192, KernelPart::prefill), 9);
}

TEST(Kernel, RowsAreThoseComputedByHand) {
  Kernel kernel{{KernelPart::decode, 8, 1024}, 2, 5, {200e-6, 190e-6, 210e-6}, 4e6, 8e6};
  const Ceilings ceilings{100e9, 50e9};  // 20 GFLOP/s and 40 GB/s are 20 and 80 % of them
  EXPECT_EQ(table_line(kernel, ceilings),
            "   decode       8     1024      200.0  [190.0, 210.0]           20.0    40.00  80 % read\n");
  EXPECT_DOUBLE_EQ(kernel_json(kernel, ceilings)["time_us"], 200);
  EXPECT_DOUBLE_EQ(kernel_json(kernel, ceilings)["of_probe"], 0.8);
  const KernelRow row = row_of(kernel);
  EXPECT_STREQ(row.part, "decode");
  EXPECT_EQ(row.tensor, 2);
  EXPECT_DOUBLE_EQ(row.high_s, 210e-6);

  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  kernel = {{KernelPart::layer, 64}, 1, 5, {200e-6, none, none}, 10e6, 1e6};
  EXPECT_EQ(table_line(kernel, ceilings),
            "    layer      64        -      200.0  [-, -]                   50.0     5.00  50 % product\n");
}

ModelConfig small() {
  ModelConfig config;
  config.hidden_size = 64;
  config.layers.assign(6, {.dense_width = 96});
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.vocab_size = 100;
  config.max_position_embeddings = 512;
  config.tie_word_embeddings = true;
  return config;
}

// In bf16 a layer has 64 x (128 + 64 + 3 x 96) products and two norms.
constexpr uint64_t layer_bytes = 2 * 64 * (128 + 64 + 3 * 96) + 2 * 4 * 64;

TEST(ModelShard, HasTheLayersThatDoNotFitInTheCaches) {
  Backend backend = make_backend({.kind = BackendKind::cpu});
  std::atomic<uint32_t> progress = 0;
  const EngineOptions engine;
  const JobPlan plan;
  const auto layers = [&](uint64_t memory) {
    return ModelShard(small(), {0, 1}, engine, plan, memory, backend, progress).num_layers();
  };
  EXPECT_EQ(layers(0), 2);
  EXPECT_EQ(layers(3 * layer_bytes), 4);
  EXPECT_EQ(layers(100 * layer_bytes), 6);
}

TEST(ModelShard, OfEveryTensorRankRunsAllItsPasses) {
  Backend backend = make_backend({.kind = BackendKind::cpu});
  std::atomic<uint32_t> progress = 0;
  EngineOptions engine;
  engine.block_size = 32;
  const JobPlan plan;
  for (const int size : {1, 2, 4})
    for (int rank = 0; rank < size; ++rank) {
      ModelShard shard(small(), {rank, size}, engine, plan, 0, backend, progress);
      // Four ranks hold copies of two KV heads.
      EXPECT_EQ(shard.cost_of_layers().layer_parameters,
                2 * 64U * (size == 4 ? 48 + 16 + 72 : (128 + 64 + 288) / size));
      EXPECT_EQ(shard.bytes_needed(512), shard.cost_of_layers().weight_bytes +
                                             shard.cost_of_head().weight_bytes +
                                             512 * shard.cost_of_layers().kv_bytes);
      shard.load();
      for (const int64_t tokens : {1, 16, 17, 40}) shard.layers(tokens)();
      shard.head(3)();
      shard.attention(5, 1, 99)();  // without memory for more than one sequence: they share its blocks
      shard.attention(1, 40, 60)();
      shard.layers(2)();
    }
  EXPECT_GT(progress, 0U);
}

}  // namespace
}  // namespace maniple
