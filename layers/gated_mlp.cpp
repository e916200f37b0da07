#include <layers/gated_mlp.hpp>

namespace maniple {

GatedMlp::GatedMlp(const std::string& source, int64_t width, const ModelConfig& config, TensorRank tensor)
    : gate_(config.gate),
      gate_up_(
          fused_as(source + ".gate_up_proj", {{source + ".gate_proj", width}, {source + ".up_proj", width}}),
          config.hidden_size, config.mlp_bias, tensor),
      down_(source + ".down_proj", config.hidden_size, width, config.mlp_bias, tensor, {},
            config.activation_group) {}

TensorView GatedMlp::forward(ConstTensorView x, ForwardContext& context) const {
  return down_.forward(gate_up_.forward_gated(gate_, x, context), context);
}

void GatedMlp::forward_partial(ConstTensorView x, TensorView sum, ForwardContext& context) const {
  require(!down_.has_bias(), "a bias is added after the sum over the ranks");
  const Workspace::Scope scope(context.workspace);
  down_.forward_partial(gate_up_.forward_gated(gate_, x, context), sum, context);
}

void GatedMlp::append_parameters(Parameters& parameters) {
  gate_up_.append_parameters(parameters);
  down_.append_parameters(parameters);
}

}  // namespace maniple
