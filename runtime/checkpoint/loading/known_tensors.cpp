#include <layers/models/model.hpp>
#include <runtime/checkpoint/loading/known_tensors.hpp>
#include <runtime/checkpoint/loading/kv_scales.hpp>
#include <runtime/checkpoint/loading/tensor_reader.hpp>
#include <runtime/checkpoint/loading/weight_names.hpp>
#include <runtime/checkpoint/quantization/stored_values.hpp>

#include <map>
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
  const bool quantised = !scheme.description().empty();
  std::set<std::string> biases;
  if (quantised) biases = biases_of(*make_stored_model(config, {}, index));
  std::map<IndexedTensor*, std::string_view> deciding;
  std::vector<IndexedTensor*> wanted;
  for (auto& [name, tensor] : index.tensors) {
    const bool decides = quantised && scheme.decides(name, index);
    const bool unplaced_bias = name.ends_with(".bias") && !biases.contains(name);
    if (decides) deciding[&tensor] = name;
    if (decides ||
        (is_kv_scale(name) ? is_scalar(tensor.info) : quantised && (is_scalar(tensor.info) || unplaced_bias)))
      wanted.push_back(&tensor);
  }
  TensorReader(index).read_each(std::move(wanted), [&](IndexedTensor& tensor, std::vector<std::byte> value) {
    const auto name = deciding.find(&tensor);
    tensor.value =
        name == deciding.end() ? std::move(value) : scheme.condensed(name->second, std::move(value));
  });
}

}  // namespace maniple
