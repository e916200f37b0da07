#include <kernels/support/counted.hpp>
#include <launch/bench/kernels.hpp>
#include <launch/bench/model_shard.hpp>
#include <launch/options/option_names.hpp>
#include <launch/preflight/job_facts.hpp>
#include <runtime/collective_phase.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

namespace maniple {
namespace {

constexpr std::array<int64_t, 19> layer_tokens = {1,  2,  3,  4,  6,   8,   12,  16,  24,  32,
                                                  48, 64, 96, 128, 192, 256, 512, 1024, 2048};

// Of one rank.
Ceilings share_of_a_rank(const Roofline& roofline) {
  const Ceilings sum = roofline.sum();
  const auto ranks = static_cast<double>(roofline.ranks.size());
  return {sum.flops / ranks, sum.read_bytes / ranks};
}

std::string name_of(const Kernel& kernel) {
  return fmt::format("tp {} {} {}{}", kernel.tensor, name_of(kernel.part), kernel.tokens,
                     kernel.context > 0 ? fmt::format(" at {}", kernel.context) : "");
}

// The part of a group's first rank, which is the largest.
RankPlan first_of(int tensor, IndexRange layers) {
  RankPlan plan;
  plan.grid = {.tensor = tensor, .pipeline = 3, .data = 1};
  plan.position.pipeline = 1;
  plan.layers = layers;
  return plan;
}

// So many layers that their weights, like those of the whole model, do not fit in the caches.
ModelConfig cut(const ModelConfig& config, int tensor, DType type, uint64_t memory) {
  const uint64_t layer = cost_of(*make_model(config, first_of(tensor, {0, 1})), type).weight_bytes;
  ModelConfig part = config;
  part.num_layers = std::min(config.num_layers, static_cast<int64_t>(std::max(memory / layer + 1, uint64_t{2})));
  return part;
}
}  // namespace
}  // namespace maniple
