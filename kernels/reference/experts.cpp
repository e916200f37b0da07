#include <kernels/contracts.hpp>
#include <kernels/reference/codes.hpp>
#include <kernels/reference/reference_ops.hpp>
#include <kernels/reference/routing.hpp>
#include <kernels/reference/rows.hpp>

#include <algorithm>
#include <cmath>

namespace maniple {

using reference::Floats;

int64_t ReferenceOps::route(ConstTensorView logits, const Router& router, Routing& routing) {
  contract::route(logits, router, routing);
  const int64_t tokens = logits.shape[0], experts = logits.shape[1];
  std::vector<reference::Choice> choices(static_cast<size_t>(tokens * router.per_token));
  Floats row_logits(static_cast<size_t>(experts)), powers(row_logits.size());
  const reference::RouterRow row{row_logits, powers};
  for (int64_t token = 0; token < tokens; ++token) {
    const auto mine = std::span(choices).subspan(static_cast<size_t>(token * router.per_token),
                                                 static_cast<size_t>(router.per_token));
    if (routing.is_padding(token)) {
      reference::choose_nobody(mine);
      continue;
    }
    reference::prepare_choice(router, logits.as<float>() + token * experts, row);
    for (float& power : powers) power = std::exp(power);
    reference::choose_experts(router, row, mine);
  }
  return reference::order_by_expert(choices, tokens, routing);
}

void ReferenceOps::grouped_matmul_gate_mul(GateActivation activation, ConstTensorView x,
                                           const Routing& routing, std::span<const Weight* const> weights,
                                           ConstTensorView biases, TensorView out) {
  contract::grouped_matmul_gate_mul(x, routing, weights, biases, out);
  const int64_t width = out.shape[1];
  for (int64_t expert = 0; expert < routing.experts.size(); ++expert) {
    const IndexRange range = routing.rows_of(expert);
    const Weight& weight = *weights[static_cast<size_t>(expert)];
    if (range.size() == 0) continue;
    Tensor inputs(device(), x.dtype, {range.size(), x.shape[1]});
    gather_rows(x, routing.tokens.rows(range.begin, range.size()), inputs.view());
    Tensor gate_up(device(), DType::fp32, {range.size(), weight.rows});
    const ConstTensorView bias = biases.empty() ? biases : biases.rows(expert, 1).reshaped({weight.rows});
    matmul(inputs.view(), weight, bias, gate_up.view());
    for (int64_t row = 0; row < range.size(); ++row) {
      Floats gate = reference::read(gate_up, row * weight.rows, width);
      const Floats up = reference::read(gate_up, row * weight.rows + weight.rows / 2, width);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = reference::gated(activation, gate[i], up[i]);
      reference::write(out, (range.begin + row) * width, gate);
    }
  }
}

void ReferenceOps::grouped_matmul(ConstTensorView x, const Routing& routing,
                                  std::span<const Weight* const> weights, TensorView out,
                                  ConstTensorView row_maxima) {
  contract::grouped_matmul(x, weights, out);
  for (int64_t expert = 0; expert < routing.experts.size(); ++expert) {
    const IndexRange range = routing.rows_of(expert);
    Tensor maxima(device(), DType::fp32, {row_maxima.empty() ? 0 : 1, range.size()});
    for (int64_t row = 0; row < maxima.shape().elements(); ++row)
      maxima.view().as<float>()[row] = reference::over_ranks(row_maxima, range.begin + row);
    matmul(x.rows(range.begin, range.size()), *weights[static_cast<size_t>(expert)], {},
           out.rows(range.begin, range.size()), maxima);
  }
}

void ReferenceOps::combine(ConstTensorView rows, const Routing& routing, ConstTensorView biases,
                           int64_t slices, TensorView out) {
  contract::combine(rows, routing, biases, slices, out);
  reference::combine(rows, routing, biases, slices, {0, out.shape[0]}, out);
}

void ReferenceOps::widen(ConstTensorView x, TensorView out) {
  contract::widen(x, out);
  reference::write(out, 0, reference::read(x, 0, x.shape.elements()));
}

}  // namespace maniple
