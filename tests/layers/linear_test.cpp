#include <gtest/gtest.h>
#include <layers/linear.hpp>
#include <support/random_tensors.hpp>

#include "layer_testing.hpp"

namespace maniple {
namespace {

using testing::fill;
using testing::Rank;
using testing::Sources;
using testing::uniform;

testing::SourceTensor random_source(uint64_t seed) {
  return [seed](int64_t row, int64_t column) {
    return uniform(seed, static_cast<uint64_t>(row * 10007 + column));
  };
}

const Sources sources{{"up.weight", random_source(1)},     {"up.bias", random_source(2)},
                      {"gate.weight", random_source(3)},   {"gate.bias", random_source(4)},
                      {"down.weight", random_source(5)},   {"down.bias", random_source(6)},
                      {"q_proj.weight", random_source(7)}, {"k_proj.weight", random_source(8)},
                      {"v_proj.weight", random_source(9)}};

// y = W x + b in double.
std::vector<double> dense(const std::string& name, int64_t outputs, const std::vector<double>& x, bool bias) {
  std::vector<double> y;
  for (int64_t row = 0; row < outputs; ++row) {
    double sum = bias ? sources.at(name + ".bias")(row, 0) : 0;
    for (size_t column = 0; column < x.size(); ++column)
      sum += sources.at(name + ".weight")(row, static_cast<int64_t>(column)) * x[column];
    y.push_back(sum);
  }
  return y;
}

constexpr int64_t hidden = 20, inner = 48, tokens = 3;

std::vector<float> input_tokens() {
  std::vector<float> x;
  for (uint64_t i = 0; i < tokens * hidden; ++i) x.push_back(uniform(99, i));
  return x;
}

TEST(ColumnThenRowParallel, EqualsTheDenseProductWithTheBiasAddedOnce) {
  for (const int ranks : {1, 2, 3, 4, 8})
    run_ranks(ranks, [&](World& world) {
      Rank rank(world);
      ForwardContext context = rank.context();
      const LogicalOutput outputs[]{{"up", inner}};
      MergedColumnParallelLinear up(outputs, hidden, true, rank.place());
      RowParallelLinear down("down", hidden, inner, true, rank.place());
      Parameters parameters;
      up.append_parameters(parameters);
      down.append_parameters(parameters);
      fill(parameters, sources, *rank.backend.ops);

      std::vector<float> x = input_tokens();
      const TensorView y =
          down.forward(up.forward(view_of(x.data(), DType::fp32, {tokens, hidden}), context), context);
      for (int64_t token = 0; token < tokens; ++token) {
        const std::vector<double> row(x.begin() + token * hidden, x.begin() + (token + 1) * hidden);
        const std::vector<double> expected = dense("down", hidden, dense("up", inner, row, true), true);
        for (int64_t i = 0; i < hidden; ++i)
          EXPECT_NEAR(y.as<float>()[token * hidden + i], expected[static_cast<size_t>(i)], 1e-4)
              << "ranks " << ranks;
      }
    });
}

TEST(RowParallel, CanLeaveTheSumToItsCaller) {
  run_ranks(3, [&](World& world) {
    Rank rank(world);
    ForwardContext context = rank.context();
    RowParallelLinear down("down", hidden, inner, true, rank.place());
    Parameters parameters;
    down.append_parameters(parameters);
    fill(parameters, sources, *rank.backend.ops);
    std::vector<float> part(static_cast<size_t>(tokens * inner / 3), 0.5F);
    const ConstTensorView x = view_of(part.data(), DType::fp32, {tokens, inner / 3});
    const TensorView whole = down.forward(x, context), partial = down.forward_partial(x, context);
    rank.groups.tensor->all_reduce(partial);
    for (int64_t i = 0; i < tokens * hidden; ++i)
      EXPECT_EQ(whole.as<float>()[i], partial.as<float>()[i] + sources.at("down.bias")(i % hidden, 0));
  });
}

TEST(RowParallel, HasTheSameBitsForEveryTensorSizeThatDividesItsSlices) {
  std::vector<std::vector<float>> results;
  for (const int ranks : {1, 2, 4, 8})
    run_ranks(ranks, [&](World& world) {
      Rank rank(world);
      ForwardContext context = rank.context();
      RowParallelLinear down("down", hidden, inner, true, rank.place());
      Parameters parameters;
      down.append_parameters(parameters);
      fill(parameters, sources, *rank.backend.ops);
      std::vector<float> part;  // this rank's columns of the inner activations
      const int64_t width = inner / ranks;
      for (int64_t token = 0; token < tokens; ++token)
        for (int64_t i = 0; i < width; ++i)
          part.push_back(uniform(5, static_cast<uint64_t>(token * inner + world.rank() * width + i)));
      const TensorView y = down.forward(view_of(part.data(), DType::fp32, {tokens, width}), context);
      if (world.rank() == 0) results.emplace_back(y.as<float>(), y.as<float>() + tokens * hidden);
    });
  for (const std::vector<float>& result : results) EXPECT_EQ(result, results.front());
}

// Local rows of a layer as (source row) values, through a source whose value is its row number.
std::vector<float> local_rows(LinearBase& layer, const Sources& rows_of, Rank& rank) {
  Parameters parameters;
  layer.append_parameters(parameters);
  fill(parameters, rows_of, *rank.backend.ops);
  ForwardContext context = rank.context();
  std::vector<float> one{1};
  const TensorView y = layer.forward(view_of(one.data(), DType::fp32, {1, 1}), context);
  return {y.as<float>(), y.as<float>() + y.shape.elements()};
}

float row_number(int64_t row, int64_t) { return static_cast<float>(row); }

TEST(MergedColumnParallel, TakesTheSameShardsFromSeparateAndFusedCheckpoints) {
  const Sources separate{{"gate.weight", row_number},
                         {"up.weight", [](int64_t row, int64_t) { return static_cast<float>(row + 12); }}};
  const Sources fused{{"gate_up.weight", row_number}};
  for (const int ranks : {1, 2, 3, 4})
    run_ranks(ranks, [&](World& world) {
      Rank rank(world);
      const std::vector<LogicalOutput> outputs = fused_as("gate_up", {{"gate", 12}, {"up", 12}});
      MergedColumnParallelLinear from_separate(outputs, 1, false, rank.place()),
          from_fused(outputs, 1, false, rank.place());
      const std::vector<float> local = local_rows(from_separate, separate, rank);
      EXPECT_EQ(local, local_rows(from_fused, fused, rank));
      EXPECT_EQ(local.front(), 12 / ranks * world.rank());
      EXPECT_EQ(local.back(), 24 - 12 / ranks * (ranks - 1 - world.rank()) - 1);
    });
}

TEST(QkvParallel, SharesKeyValueHeadsAmongRanks) {
  const Sources rows{
      {"q_proj.weight", row_number}, {"k_proj.weight", row_number}, {"v_proj.weight", row_number}};
  run_ranks(8, [&](World& world) {
    Rank rank(world);
    const LogicalOutput outputs[] = {{"q_proj", 16}, {"k_proj", 4}, {"v_proj", 4}};
    QkvParallelLinear qkv(outputs, 1, {2, 2}, false, rank.place());  // 8 heads of 2, 2 KV heads
    EXPECT_EQ(qkv.heads().query_heads, 1);
    EXPECT_EQ(qkv.heads().kv_heads, 1);
    EXPECT_EQ(qkv.heads().key_dim, 16);
    const float q = static_cast<float>(2 * world.rank()), kv = world.rank() < 4 ? 0.0F : 2.0F;
    std::vector<float> padded(48);  // each head is [half | 0 | half | 0]
    for (size_t head = 0; head < 3; ++head) {
      padded[16 * head] = head == 0 ? q : kv;
      padded[16 * head + 8] = padded[16 * head] + 1;
    }
    EXPECT_EQ(local_rows(qkv, rows, rank), padded);
  });
}

TEST(QkvParallel, RefusesHeadsThatDoNotDivide) {
  const auto make = [](int64_t heads, int64_t kv_heads, int ranks) {
    const LogicalOutput outputs[] = {{"q", heads * 4}, {"k", kv_heads * 4}, {"v", kv_heads * 4}};
    QkvParallelLinear(outputs, 8, {4, 4}, false, {0, ranks});
  };
  EXPECT_THROW(make(28, 4, 8), Error);
  EXPECT_THROW(make(24, 8, 3), Error);
  EXPECT_NO_THROW(make(24, 8, 4));
}

}  // namespace
}  // namespace maniple
