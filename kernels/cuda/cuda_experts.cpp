#include <kernels/contracts.hpp>
#include <kernels/cuda/cuda_ops.hpp>
#include <kernels/cuda/elementwise.hpp>
#include <kernels/cuda/experts.hpp>
#include <kernels/cuda/skinny_gemm.hpp>

#include <algorithm>
#include <vector>

namespace maniple::cuda {

namespace {

// Returns the bound of the rows. logits: written only with a product.
int64_t route_rows(device::Stream stream, const Router& router, const Routing& routing, const float* logits,
                   const RouterProduct& product = {}) {
  const int64_t tokens = routing.chosen.shape[0], all = routing.counts.shape[0];
  route_tokens(stream,
               {narrow(router.per_token), router.normalise, router.scoring == RouterScoring::sigmoid,
                router.group_score == GroupScore::top2, narrow(router.groups), narrow(router.kept_groups),
                router.epsilon, router.scale, floats_of(router.bias), floats_of(router.logit_bias)},
               {const_cast<float*>(logits),
                routing.past_lengths.empty() ? nullptr : routing.past_lengths.as<int32_t>(), narrow(tokens),
                narrow(all), narrow(routing.experts.begin), narrow(routing.experts.size()),
                narrow(routing.chosen.shape[1]), routing.tokens.as<int32_t>(), routing.weights.as<float>(),
                routing.offsets.as<int32_t>(), routing.chosen.as<int32_t>(), routing.places.as<int32_t>(),
                routing.counts.as<int32_t>(), product});
  return routing.tokens.shape[0];
}

}  // namespace

int64_t CudaOps::route(ConstTensorView logits, const Router& router, Routing& routing) {
  contract::route(logits, router, routing);
  return route_rows(stream_, router, routing, logits.as<float>());
}

std::optional<int64_t> CudaOps::matmul_route(ConstTensorView x, const Weight& gate, const Router& router,
                                             Routing& routing) {
  contract::matmul_route(x, gate, router, routing);
  if (x.shape[0] > max_routed_tokens || x.shape[0] * gate.rows > skinny_partial_floats ||
      gate.columns % 8 != 0 || !is_aligned(x))
    return {};
  return route_rows(stream_, router, routing, skinny_partials_.view().as<float>(),
                    {x.dtype, x.data, gate.packed.view().as<float>(), narrow(gate.columns),
                     skinny_arrivals_.view().as<int32_t>()});
}

// Captured graphs hold a table's address, so it stays.
const void* const* CudaOps::addresses_of(std::span<const Weight* const> weights) {
  std::vector<const std::byte*> addresses;
  for (const Weight* weight : weights) addresses.push_back(weight->packed.view().data);
  return reinterpret_cast<const void* const*>(table_of(std::as_bytes(std::span(addresses))));
}
const std::byte* CudaOps::table_of(std::span<const std::byte> bytes) {
  Tensor& table = expert_tables_[{reinterpret_cast<const char*>(bytes.data()), bytes.size()}];
  if (table.view().empty()) {
    table = Tensor(device_, DType::uint8, {static_cast<int64_t>(bytes.size())});
    device_.upload(table.view().data, bytes.data(), bytes.size());
  }
  return table.view().data;
}

void CudaOps::multiply_grouped(ConstTensorView x, const int32_t* x_rows, const Routing& routing,
                               std::span<const Weight* const> weights, ConstTensorView biases, TensorView out,
                               std::optional<GateActivation> gate, ConstTensorView row_maxima) {
  const Weight& first = *weights[0];
  if (out.empty()) return;
  GroupedArguments product{.dtype = x.dtype,
                           .out_type = out.dtype,
                           .x = x.data,
                           .x_rows = x_rows,
                           .offsets = routing.offsets.as<int32_t>(),
                           .weights = nullptr,
                           .out = out.data,
                           .experts = narrow(routing.experts.size()),
                           .most_rows = out.shape[0],
                           .n = narrow(first.rows),
                           .k = narrow(first.columns),
                           .width = narrow(out.shape[1]),
                           .gated = gate.has_value(),
                           .aligned = false,
                           .gate = gate.value_or(GateActivation::silu),
                           .biases = floats_of(biases)};
  if (first.format != WeightFormat::dense) return multiply_grouped_codes(product, x, weights, row_maxima);
  product.aligned =
      first.columns % 8 == 0 && is_aligned(x) &&
      std::ranges::all_of(weights, [&](const Weight* weight) { return is_aligned(weight->packed); });
  product.weights = addresses_of(weights);
  grouped_product(stream_, product);
}

void CudaOps::grouped_matmul_gate_mul(GateActivation activation, ConstTensorView x, const Routing& routing,
                                      std::span<const Weight* const> weights, ConstTensorView biases,
                                      TensorView out) {
  contract::grouped_matmul_gate_mul(x, routing, weights, biases, out);
  multiply_grouped(x, routing.tokens.as<int32_t>(), routing, weights, biases, out, activation, {});
}

void CudaOps::grouped_matmul(ConstTensorView x, const Routing& routing,
                             std::span<const Weight* const> weights, TensorView out,
                             ConstTensorView row_maxima) {
  contract::grouped_matmul(x, weights, out);
  multiply_grouped(x, nullptr, routing, weights, {}, out, {}, row_maxima);
}

void CudaOps::combine(ConstTensorView rows, const Routing& routing, ConstTensorView biases, int64_t slices,
                      TensorView out) {
  contract::combine(rows, routing, biases, slices, out);
  combine_rows(stream_, {rows.as<float>(), routing.weights.as<float>(), routing.chosen.as<int32_t>(),
                         routing.places.as<int32_t>(), out.as<float>(), narrow(out.shape[0]),
                         narrow(routing.chosen.shape[1]), narrow(out.shape[1]),
                         narrow(routing.experts.size()), narrow(slices), floats_of(biases)});
}

void CudaOps::widen(ConstTensorView x, TensorView out) {
  contract::widen(x, out);
  convert(stream_, x.dtype, x.data, out.dtype, out.data, x.shape.elements());
}

}  // namespace maniple::cuda
