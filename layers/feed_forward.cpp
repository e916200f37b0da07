#include <layers/feed_forward.hpp>
#include <parallel/shard.hpp>

#include <fmt/format.h>

namespace maniple {

FeedForward::FeedForward(const std::string& name, const LayerConfig& layer, const ModelConfig& config,
                         const RankPlan& plan) {
  const TensorRank tensor = plan.tensor();
  if (!layer.is_sparse()) {
    mlp_.emplace(name + ".mlp", layer.dense_width, config, tensor);
    return;
  }
  experts_.emplace(name, config, plan);
  const ExpertsConfig& experts = config.experts;
  if (experts.shared_width == 0) return;
  shared_is_whole_ = !keeps_granules(experts.shared_width, tensor.size, config.activation_group);
  const std::string block = fmt::format("{}.{}.", name, experts.names.block);
  mlp_.emplace(block + std::string(experts.names.shared), experts.shared_width, config,
               shared_is_whole_ ? TensorRank{} : tensor);
  const std::string_view gate = experts.names.shared_gate;
  if (gate.empty()) return;
  const int64_t hidden = config.hidden_size;
  shared_gate_.spec = {.rows = 1,
                       .columns = hidden,
                       .pieces = {{.source = {block + std::string(gate)},
                                   .source_shape = {1, hidden},
                                   .rows = {0, 1},
                                   .columns = {0, hidden}}},
                       .fp32 = true};
}

TensorView FeedForward::forward(ConstTensorView x, ForwardContext& context) const {
  if (!experts_) return mlp_->forward(x, context);
  const TensorView sum = experts_->forward(x, context);
  if (!mlp_) return sum;
  const Workspace::Scope scope(context.workspace);
  const ConstTensorView own = context.rows.own(x);
  const TensorView shared = mlp_->forward(shared_is_whole_ ? own : x, context);
  if (shared_gate_.spec.rows == 0)
    context.ops.add(sum, shared, sum);
  else
    context.ops.add_gated(shared, shared_gate(own, context), sum);
  return sum;
}

ConstTensorView FeedForward::shared_gate(ConstTensorView x, ForwardContext& context) const {
  const TensorView gate = context.workspace.take(DType::fp32, {x.shape[0], 1});
  context.ops.matmul(in_fp32(x, context), shared_gate_.matrix, {}, gate);
  return gate;
}

void FeedForward::append_parameters(Parameters& parameters) {
  if (experts_) experts_->append_parameters(parameters);
  if (mlp_) mlp_->append_parameters(parameters);
  if (shared_gate_.spec.rows > 0) parameters.push_back(&shared_gate_);
}

void FeedForward::prepare(Device& device) {
  if (experts_) experts_->prepare(device);
}

}  // namespace maniple
