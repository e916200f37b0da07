#include <gtest/gtest.h>
#include <layers/models/cost.hpp>

namespace maniple {
namespace {

ModelConfig small(bool tied) {
  ModelConfig config;
  config.hidden_size = 8;
  config.layers.assign(3, {.dense_width = 12});
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.vocab_size = 70;
  config.tie_word_embeddings = tied;
  return config;
}
RankPlan tensor_rank(int rank, int size) {
  RankPlan plan;
  plan.grid.tensor = size;
  plan.position.tensor = rank;
  return plan;
}
RankPlan stage(int index, int count, IndexRange layers) {
  RankPlan plan;
  plan.grid.pipeline = count;
  plan.position.pipeline = index;
  plan.layers = layers;
  return plan;
}
// q, k, v of 64 + 32 + 32 rows, o, three matrices of the MLP.
constexpr uint64_t layer = 128 * 8 + 8 * 64 + 3 * 8 * 12, norms = 3 * 2 * 8 + 8;

ModelCost cost(const ModelConfig& config, const RankPlan& plan = {}, DType type = DType::bf16) {
  return dense_cost(*make_model(config, plan), type, type);
}

TEST(ModelCost, CountsTheTableOnceAsTheHeadWhetherTiedOrNot) {
  for (const bool tied : {false, true}) {
    const ModelCost whole = cost(small(tied));
    EXPECT_EQ(whole.layer_parameters, 3 * layer);
    EXPECT_EQ(whole.head_parameters, 70 * 8);  // without the padding to 128 rows
    EXPECT_EQ(whole.weight_bytes, 2 * (3 * layer + 70 * 8) + 4 * norms);
    EXPECT_EQ(whole.kv_bytes, 3 * 2 * 32 * 2);
    EXPECT_EQ(whole.attention_flops, 4 * 3 * 4 * 16);
  }
}

TEST(ModelCost, BiasesAndHeadNormsAreBytesAndNoProducts) {
  ModelConfig config = small(false);
  config.qkv_bias = config.qk_norm = true;
  const ModelCost whole = cost(config, {}, DType::fp32);
  EXPECT_EQ(whole.layer_parameters, 3 * layer);
  EXPECT_EQ(whole.weight_bytes, 4 * (3 * layer + 70 * 8 + norms + 3 * (128 + 2 * 16)));
}

TEST(ModelCost, ShardsAddUpAndCopiesOfKvHeadsAreExtra) {
  ModelCost sum;
  for (int rank = 0; rank < 4; ++rank) {
    const ModelCost part = cost(small(true), tensor_rank(rank, 4));
    sum.layer_parameters += part.layer_parameters;
    sum.head_parameters += part.head_parameters;
    sum.attention_flops += part.attention_flops;
  }
  EXPECT_EQ(sum.head_parameters, 70 * 8);
  EXPECT_EQ(sum.attention_flops, 4 * 3 * 4 * 16);
  EXPECT_EQ(sum.layer_parameters, 3 * (layer + 64 * 8));  // four ranks hold two KV heads: each twice
}

TEST(ModelCost, StagesHaveNoTablesOfTheirOwn) {
  const ModelCost middle = cost(small(false), stage(1, 3, {0, 2}));
  EXPECT_EQ(middle.layer_parameters, 2 * layer);
  EXPECT_EQ(middle.head_parameters, 0U);
  const ModelCost head = cost(small(true), stage(1, 2, {3, 3}));
  EXPECT_EQ(head.layer_parameters, 0U);
  EXPECT_EQ(head.head_parameters, 70U * 8);
}

TEST(ModelCost, OfExpertsIsThatOfTheOnesATokenUses) {
  ModelConfig config = small(false);
  config.layers[2] = {};
  config.experts = {.count = 5, .width = 10, .router = {.per_token = 2}};
  const ModelCost whole = cost(config);
  EXPECT_EQ(whole.layer_parameters, 3 * layer - 3 * 8 * 12 + 5 * 8 + 2 * 3 * 8 * 10);
  EXPECT_EQ(whole.expert_bytes, 5 * 3 * 8 * 10 * 2);
  EXPECT_EQ(whole.weight_bytes,
            cost(small(false)).weight_bytes - 3 * 8 * 12 * 2 + 5 * 8 * 4 + whole.expert_bytes);
  // One token leaves three of five experts unread, two tokens 9 of 25.
  const auto moved = [&](uint64_t tokens) {
    return bytes_moved(whole, {.steps = 1, .tokens = tokens}) -
           2.0 * static_cast<double>(whole.kv_bytes * tokens);
  };
  const auto experts = static_cast<double>(whole.expert_bytes), all = static_cast<double>(whole.weight_bytes);
  EXPECT_DOUBLE_EQ(moved(1), all - 0.6 * experts);
  EXPECT_DOUBLE_EQ(moved(2), all - 0.36 * experts);
}

// tests/data/models/shakespeare: tied, 5 layers, 8 heads of 64, 4 KV heads.
TEST(StepWork, IsThatOfAHandCalculation) {
  ModelConfig config = small(true);
  config.hidden_size = 256;
  config.layers.assign(5, {.dense_width = 768});
  config.num_heads = 8;
  config.num_kv_heads = 4;
  config.head_dim = 64;
  config.vocab_size = 2048;
  config.qk_norm = true;
  const ModelCost whole = cost(config);
  EXPECT_EQ(whole.layer_parameters, 4'915'200U);
  EXPECT_EQ(whole.head_parameters, 524'288U);
  EXPECT_EQ(whole.weight_bytes, 10'878'976U + 4 * 3456);
  EXPECT_EQ(whole.kv_bytes, 5'120U);
  // A prompt of 100 tokens, then two decodes: 5050 + 101 + 102 positions; the cache holds 0, 100 and 101 tokens.
  const StepWork work{.steps = 3, .tokens = 102, .sampled = 3, .context = 201, .attended = 5'253};
  EXPECT_DOUBLE_EQ(flops(whole, work), 2. * 4'915'200 * 102 + 2. * 524'288 * 3 + 4. * 5 * 512 * 5'253);
  EXPECT_DOUBLE_EQ(bytes_moved(whole, work), 3. * 10'892'800 + 5'120. * (201 + 102 + 102));

  // Two of the five layers see at most 16 positions a token.
  config.layers[0].window = config.layers[3].window = 16;
  const ModelCost windowed = cost(config);
  EXPECT_DOUBLE_EQ(flops(windowed, work),
                   2. * 4'915'200 * 102 + 2. * 524'288 * 3 + 4. * 512 * (3 * 5'253 + 2 * 102 * 16));
  EXPECT_DOUBLE_EQ(bytes_moved(windowed, work), bytes_moved(whole, work));
  const StepWork decode{.steps = 1, .tokens = 4, .sampled = 4, .context = 4'000, .attended = 4'004};
  EXPECT_DOUBLE_EQ(bytes_moved(windowed, decode), 10'892'800 + 1'024. * (3 * 4'000 + 2 * 64 + 5 * 8));
}

}  // namespace
}  // namespace maniple
