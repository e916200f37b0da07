#include <layers/models/cost.hpp>

#include <algorithm>
#include <cmath>

namespace maniple {
namespace {

// Of some positions of all tokens, those that a layer sees, on average.
double seen(const ModelCost& cost, uint64_t positions, uint64_t tokens) {
  double sum = 0;
  for (const int64_t window : cost.windows)
    sum += static_cast<double>(window > 0 ? std::min(positions, tokens * static_cast<uint64_t>(window))
                                          : positions);
  return cost.windows.empty() ? static_cast<double>(positions)
                              : sum / static_cast<double>(cost.windows.size());
}

}  // namespace

ModelCost dense_cost(Model& model, DType type, DType cache) {
  ModelCost cost;
  for (const Parameter* parameter : model.parameters()) {
    const uint64_t count = parameter->spec.elements();
    const double share = parameter->spec.used;
    if (parameter != model.embedding() || parameter == model.head())
      cost.weight_bytes += count * size_of(parameter->spec.type(type));
    if (share < 1) {
      cost.expert_bytes += count * size_of(type);
      cost.expert_share = share;
    }
    if (parameter->spec.role == WeightRole::vector) continue;
    if (parameter == model.head())
      cost.head_parameters += count;
    else if (parameter != model.embedding())
      cost.layer_parameters += static_cast<uint64_t>(static_cast<double>(count) * share);
  }
  if (model.num_layers() == 0) return cost;
  cost.windows = model.windows();
  const HeadLayout heads = model.heads();
  const auto layers = static_cast<uint64_t>(model.num_layers());
  cost.kv_bytes = layers * KvLayout::of(heads, 1, cache).block_bytes();
  cost.attention_flops =
      2 * layers *
      static_cast<uint64_t>(heads.query_width() + heads.out_width());  // q k^T and the sum of values
  return cost;
}

double flops(const ModelCost& cost, const StepWork& work) {
  const auto product = [](uint64_t a, uint64_t b) { return static_cast<double>(a) * static_cast<double>(b); };
  return 2 * product(cost.layer_parameters, work.tokens) + 2 * product(cost.head_parameters, work.sampled) +
         static_cast<double>(cost.attention_flops) * seen(cost, work.attended, work.tokens);
}

double bytes_moved(const ModelCost& cost, const StepWork& work) {
  const auto steps = static_cast<double>(work.steps);
  const double unused =
      std::pow(1 - cost.expert_share, static_cast<double>(work.tokens) / std::max(steps, 1.0));
  return steps * (static_cast<double>(cost.weight_bytes) - unused * static_cast<double>(cost.expert_bytes)) +
         static_cast<double>(cost.kv_bytes) *
             (seen(cost, work.context, work.tokens) + 2 * static_cast<double>(work.tokens));
}

}  // namespace maniple
