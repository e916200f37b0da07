// The feed-forward block of a layer: a gated MLP, or experts, beside which one more may see every token. Routed and shared experts
// are two sums over the ranks, added once in fp32: routed + shared, or routed + sigmoid(x w) shared. Where ranks
// hold all rows, one collective makes both.
#pragma once

#include <layers/gated_mlp.hpp>
#include <layers/sparse_moe.hpp>

#include <optional>

namespace maniple {

class FeedForward {
 public:
  // name: "model.layers.0"
  FeedForward(const std::string& name, const LayerConfig& layer, const ModelConfig& config,
              const RankPlan& plan);
  // x [tokens, hidden] -> fp32 [context.rows of tokens, hidden].
  TensorView forward(ConstTensorView x, ForwardContext& context) const;
  void append_parameters(Parameters& parameters);
  // Call it once, before the first forward.
  void prepare(Device& device);
  const SparseMoe* experts() const { return experts_ ? &*experts_ : nullptr; }

 private:
  struct Sums {
    TensorView routed, shared;  // fp32 [context.rows of tokens, hidden]
  };
  Sums sums_of(ConstTensorView x, ForwardContext& context) const;

  std::optional<GatedMlp> mlp_;  // of a dense layer, or the shared expert
  std::optional<SparseMoe> experts_;
  bool shared_is_whole_ = false;  // on every rank, where these would cut its blocks of inputs with one scale
  Parameter shared_gate_;         // fp32 [1, hidden]; no rows: there is none
};

}  // namespace maniple
