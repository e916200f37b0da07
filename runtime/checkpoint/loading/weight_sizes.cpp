#include <runtime/checkpoint/loading/weight_sizes.hpp>

namespace maniple {

size_t weight_bytes(Model& model, DType weight_type, const QuantScheme& scheme) {
  size_t bytes = 0;
  for (const Parameter* parameter : model.parameters()) {
    const WeightSpec& spec = parameter->spec;
    bytes += spec.role == WeightRole::matrix ? expected_shape(scheme, spec, weight_type).stored_bytes()
                                             : static_cast<size_t>(spec.rows) * sizeof(float);
  }
  return bytes;
}

ModelCost stored_cost(Model& model, DType weight_type, const QuantScheme& scheme, DType cache) {
  ModelCost cost = dense_cost(model, weight_type, cache);
  for (const Parameter* parameter : model.parameters()) {
    const bool only_looked_up = parameter == model.embedding() && parameter != model.head();
    if (parameter->spec.role != WeightRole::matrix || only_looked_up) continue;
    const WeightShape shape = expected_shape(scheme, parameter->spec, weight_type);
    if (shape.format == WeightFormat::dense) continue;
    const uint64_t as_dense = parameter->spec.elements() * size_of(weight_type);
    cost.weight_bytes = cost.weight_bytes - as_dense + shape.stored_bytes();
    if (parameter->spec.used < 1) cost.expert_bytes = cost.expert_bytes - as_dense + shape.stored_bytes();
  }
  return cost;
}

}  // namespace maniple
