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
  shared_gate_.spec = matrix_spec({block + std::string(gate)}, {1, config.hidden_size}, {0, 1});
  shared_gate_.spec.fp32 = true;
}

TensorView FeedForward::forward(ConstTensorView x, ForwardContext& context) const {
  if (!experts_) return mlp_->forward(x, context);
  if (!mlp_) return experts_->forward(x, context);
  const Sums sums = sums_of(x, context);
  const Workspace::Scope scope(context.workspace);
  if (shared_gate_.spec.rows == 0)
    context.ops.add(sums.routed, sums.shared, sums.routed);
  else
    context.ops.add_gated(sums.shared, fp32_product(context.rows.own(x), shared_gate_, context), sums.routed);
  return sums.routed;
}

FeedForward::Sums FeedForward::sums_of(ConstTensorView x, ForwardContext& context) const {
  if (shared_is_whole_ || !experts_->adds_over_tensor()) {
    const TensorView routed = experts_->forward(x, context);
    return {routed, mlp_->forward(shared_is_whole_ ? context.rows.own(x) : x, context)};
  }
  const TensorView both = context.workspace.take_sum(DType::fp32, {2, x.shape[0], x.shape[1]}),
                   routed = both.rows(0, 1).reshaped(x.shape), shared = both.rows(1, 1).reshaped(x.shape);
  experts_->forward_partial(x, routed, context);
  mlp_->forward_partial(x, shared, context);
  Communicator& tensor = *context.groups.tensor;
  if (context.rows.sharded()) return {context.rows.sum(routed, tensor), context.rows.sum(shared, tensor)};
  tensor.all_reduce(both);
  return {routed, shared};
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
