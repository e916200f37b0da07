// A layer of experts in place of the MLP: a router sends each token to a few gated MLPs, whose weighted outputs are
// summed. Over the tensor group experts lie whole, or split inside, or both: of `expert` x `parts` ranks each
// holds its part of its range of experts. Every rank has all rows of x, so no token travels.
//
// Order of the sum, whatever the split: a tree over the slices of an expert's inner width; weights; a chain over
// the experts of a slice of all experts; a tree over these slices. Where a split does not divide the slices,
// outputs are weighed first, and added once over the tensor group.
#pragma once

#include <layers/forward_context.hpp>
#include <layers/model_config.hpp>
#include <layers/weight.hpp>
#include <parallel/rank_plan.hpp>

#include <string>
#include <vector>

namespace maniple {

class SparseMoe {
 public:
  // layer: "model.layers.0"
  SparseMoe(const std::string& layer, const ModelConfig& config, const RankPlan& plan);
  // x [tokens, hidden] -> fp32 [context.rows of tokens, hidden].
  TensorView forward(ConstTensorView x, ForwardContext& context) const;
  // This rank's part of the sum, fp32 [tokens, hidden]: what forward adds up over the tensor group, where adds_over_tensor().
  void forward_partial(ConstTensorView x, TensorView sum, ForwardContext& context) const;
  bool adds_over_tensor() const { return !keeps_order_ || parts_.size == 1; }
  void append_parameters(Parameters& parameters);
  // Makes the counters. Call it once, before the first forward.
  void prepare(Device& device) { counts_ = zeroed(device, DType::int32, {all_experts_}); }
  ConstTensorView counts() const { return counts_.view(); }

 private:
  Routing routing_of(int64_t tokens, ForwardContext& context) const;
  // Returns a bound of the routing's rows.
  int64_t route(ConstTensorView x, Routing& routing, ForwardContext& context) const;
  // A bias of all experts of this rank as [experts, rows], or empty.
  ConstTensorView by_expert(const Parameter& bias) const;

  int64_t all_experts_;
  IndexRange experts_;  // of this rank
  TensorRank parts_;    // of each expert
  int64_t width_;       // of the rank's part of an expert
  Router router_;
  bool keeps_order_;  // for any split
  GateActivation activation_;
  Parameter gate_, correction_bias_, logit_bias_;  // of the router; fp32, on every rank
  std::vector<Parameter> gate_up_, down_;          // by expert of this rank
  Parameter gate_up_bias_, down_bias_;             // of these, fp32 [experts, rows]; no rows: there is none
  std::vector<const Weight*> gate_up_weights_, down_weights_;  // of these
  mutable Tensor counts_;                                      // int32 [all experts]: forward counts
};

}  // namespace maniple
