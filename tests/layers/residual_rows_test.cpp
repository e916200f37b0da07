#include <gtest/gtest.h>
#include <layers/residual_rows.hpp>
#include <layers/rms_norm.hpp>
#include <support/random_tensors.hpp>

#include <cstring>

#include "layer_testing.hpp"

namespace maniple {
namespace {

using testing::fill;
using testing::Rank;
using testing::uniform;

struct Thresholds {
  int64_t tokens, width;
  int ranks;
  bool sharded;
};

TEST(ResidualRows, AreShardedFrom256TokensAnd256KiBOn) {
  const Thresholds cases[] = {{255, 4096, 2, false}, {256, 256, 2, true}, {256, 255, 2, false},
                              {257, 255, 3, false},  {258, 255, 3, true}, {4096, 16, 4, true},
                              {4095, 16, 4, false},  {4096, 16, 1, false}};
  for (const Thresholds& test : cases)
    run_ranks(test.ranks, [&](World& world) {
      Rank rank(world);
      const ResidualRows rows(test.tokens, test.width, *rank.groups.tensor);
      EXPECT_EQ(rows.sharded(), test.sharded) << test.tokens << " x " << test.width << " on " << test.ranks;
      EXPECT_EQ(rows.count(test.tokens) == test.tokens, !test.sharded);
    });
}

// One step of the residual stream: sum over the ranks, addition, norm.
std::vector<float> add_and_norm(World& world, int64_t tokens, int64_t width, bool may_shard) {
  Rank rank(world);
  ForwardContext context = rank.context();
  Communicator& tensor = *rank.groups.tensor;
  if (may_shard) context.rows = ResidualRows(tokens, width, tensor);
  RmsNorm norm("norm", width, 1e-5F);
  Parameters parameters;
  norm.append_parameters(parameters);
  fill(parameters,
       {{"norm.weight", [](int64_t row, int64_t) { return uniform(3, static_cast<uint64_t>(row)); }}},
       *rank.backend.ops);

  std::vector<float> part(static_cast<size_t>(tokens * width)), residual = part, out = part;
  for (size_t i = 0; i < part.size(); ++i) {
    part[i] = uniform(static_cast<uint64_t>(10 + world.rank()), i);
    residual[i] = uniform(2, i);
  }
  const Shape shape{tokens, width};
  const TensorView sum = context.rows.sum(view_of(part.data(), DType::fp32, shape), tensor);
  EXPECT_EQ(sum.shape[0], context.rows.count(tokens));
  const TensorView whole = view_of(out.data(), DType::fp32, shape);
  norm.forward_adding(sum, context.rows.own(view_of(residual.data(), DType::fp32, shape)), whole, context);
  return out;
}

TEST(ResidualRows, GiveTheBitsOfAReplicatedStreamOnEveryRank) {
  for (const int ranks : {2, 3, 4, 8})
    for (const auto& [tokens, width] : {std::pair<int64_t, int64_t>{256, 256}, {259, 257}, {1031, 65}})
      run_ranks(ranks, [&](World& world) {
        const std::vector<float> whole = add_and_norm(world, tokens, width, false);
        const std::vector<float> sharded = add_and_norm(world, tokens, width, true);
        EXPECT_EQ(std::memcmp(whole.data(), sharded.data(), whole.size() * sizeof(float)), 0)
            << tokens << " x " << width << " on " << ranks;
      });
}

}  // namespace
}  // namespace maniple
