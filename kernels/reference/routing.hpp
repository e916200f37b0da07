// Choosing experts and adding up what they made, for the backends on the host.
#pragma once

#include <kernels/ops.hpp>

namespace maniple::reference {

struct Choice {
  int32_t expert = 0;  // negative: of a padding row
  float weight = 0;
};

// A token on its way from logits to choices, of all experts. Between the two steps the backend raises e to the powers.
struct RouterRow {
  std::span<float> logits;  // with the router's bias
  std::span<float> powers;  // none above 0
};
void prepare_choice(const Router& router, const float* logits, RouterRow row);
// choices: as many as the router wants, best first. Overwrites the row.
void choose_experts(const Router& router, RouterRow row, std::span<Choice> choices);
// The choices of a padding row.
void choose_nobody(std::span<Choice> choices);
// Fills the routing, and its counters, from the choices of all tokens. Returns the rows.
int64_t order_by_expert(std::span<Choice> choices, int64_t tokens, Routing& routing);
// Ops::combine of some tokens.
void combine(ConstTensorView rows, const Routing& routing, ConstTensorView biases, int64_t slices,
             IndexRange tokens, TensorView out);

}  // namespace maniple::reference
