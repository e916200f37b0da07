// The gated feed-forward block: down(silu(gate x) * up x), or with another gate (ModelConfig::gate), sharded over the tensor group.
#pragma once

#include <layers/linear.hpp>
#include <layers/model_config.hpp>

namespace maniple {

class GatedMlp {
 public:
  // source: "model.layers.0.mlp"; width: the inner one, of all ranks.
  GatedMlp(const std::string& source, int64_t width, const ModelConfig& config, TensorRank tensor);
  // x [tokens, hidden] -> fp32 [tokens, hidden].
  TensorView forward(ConstTensorView x, ForwardContext& context) const;
  // This rank's part of the sum, fp32 [tokens, hidden], of a layer without biases.
  void forward_partial(ConstTensorView x, TensorView sum, ForwardContext& context) const;
  void append_parameters(Parameters& parameters);

 private:
  GateActivation gate_;
  MergedColumnParallelLinear gate_up_;
  RowParallelLinear down_;
};

}  // namespace maniple
