// Choosing experts and adding up what they made, for the backends on the host.
#pragma once

#include <kernels/ops.hpp>

namespace maniple::reference {

struct Choice {
  int32_t expert = 0;  // negative: of a padding row
  float weight = 0;
};

// A NaN among logits counts as -inf in the choice. The weights of a token with NaN, or whose largest logit is infinite, are NaN.
float router_logit(float logit);
// One token. shares: exp(logit - largest logit) of all experts. choices: as many as the router wants, best first.
void choose_experts(const float* logits, const float* shares, int64_t experts, bool normalise,
                    std::span<Choice> choices);
// The choices of a padding row.
void choose_nobody(std::span<Choice> choices);
// Fills the routing, and its counters, from the choices of all tokens. Returns the rows.
int64_t order_by_expert(std::span<Choice> choices, int64_t tokens, Routing& routing);
// Ops::combine of some tokens.
void combine(ConstTensorView rows, const Routing& routing, int64_t slices, IndexRange tokens, TensorView out);

}  // namespace maniple::reference
