#include <layers/models/model.hpp>
#include <runtime/checkpoint/loading/known_tensors.hpp>
#include <runtime/checkpoint/loading/kv_scales.hpp>
#include <runtime/checkpoint/loading/tensor_reader.hpp>
#include <runtime/checkpoint/loading/weight_names.hpp>
#include <runtime/checkpoint/quantization/stored_values.hpp>

#include <set>

namespace maniple {
namespace {

std::set<std::string> biases_of(Model& model) {
  std::set<std::string> names;
  for (const Parameter* parameter : model.parameters())
    for (const WeightPiece& piece : parameter->spec.pieces)
      if (piece.source.part == "bias") names.insert(piece.source.tensor());
  return names;
}

}  // namespace

void read_known_tensors(WeightIndex& index, const ModelConfig& config, const QuantScheme& scheme) {
  TensorReader reader(index);
  for (auto& [name, tensor] : index.tensors)
    if (is_kv_scale(name) && is_scalar(tensor.info)) tensor.value = reader.read(tensor);
  if (scheme.description().empty()) return;
  const std::set<std::string> biases = biases_of(*make_stored_model(config, {}, index));
  for (auto& [name, tensor] : index.tensors)
    if (scheme.decides(name))
      tensor.value = scheme.condensed(name, reader.read(tensor));
    else if (!is_kv_scale(name) &&
             (is_scalar(tensor.info) || (name.ends_with(".bias") && !biases.contains(name))))
      tensor.value = reader.read(tensor);
}

}  // namespace maniple
