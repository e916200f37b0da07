#include <kernels/support/counted.hpp>
#include <runtime/checkpoint/loading/kv_scales.hpp>
#include <runtime/checkpoint/loading/weight_names.hpp>
#include <runtime/checkpoint/quantization/stored_values.hpp>
#include <runtime/checkpoint/quantization/unexplained.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace maniple {
namespace {

// "a, b, c and 12 more"
std::string some_of(const std::set<std::string>& names) {
  std::string text;
  size_t shown = 0;
  for (const std::string& name : names) {
    if (++shown > 5) return text + fmt::format(" and {} more", names.size() - 5);
    text += (shown > 1 ? ", " : "") + name;
  }
  return text;
}

// A checkpoint holds its experts one by one, or fused: tensors of three dimensions.
void refuse_mixed_experts(Model& whole, const WeightIndex& index) {
  std::string alone, fused;
  for (const Parameter* parameter : whole.parameters())
    for (const WeightPiece& piece : parameter->spec.pieces) {
      if (piece.source_shape.rank() == 3) fused = piece.source.tensor();
      if (piece.fused.shape.rank() < 3) continue;
      if (index.tensors.contains(piece.source.tensor())) alone = piece.source.tensor();
      if (index.tensors.contains(piece.fused.source.tensor())) fused = piece.fused.source.tensor();
    }
  if (!alone.empty() && !fused.empty())
    refuse_files("the checkpoint holds experts one by one ({}) and fused ({}); one form is read", alone,
                 fused);
}

// Whether any tensor of the source is there, in whatever form.
bool holds(const WeightIndex& index, const WeightSource& source) {
  return source.part == "weight" ? is_stored(index, source.module) : index.tensors.contains(source.tensor());
}

void check_tensor(const ExpectedTensor& wanted, const TensorInfo& found, const QuantScheme& scheme) {
  const auto shape = [](const std::vector<int64_t>& sizes) {
    return fmt::format("[{}]", fmt::join(sizes, ", "));
  };
  if (std::ranges::count(wanted.shapes, found.shape) == 0)
    refuse_files("tensor {} has the shape {} in the checkpoint, but config.json asks for {}", wanted.name,
                 shape(found.shape), shape(wanted.shapes[0]));
  if (std::ranges::count(wanted.types, found.stored_type) > 0) return;
  const std::string types =
      fmt::format("{}{}", fmt::join(wanted.types, ", "), wanted.types.size() == 1 ? " is" : " are");
  const std::string reader = scheme.description().empty() ? "" : fmt::format(" ({})", scheme.description());
  refuse_files("tensor {} is stored as {}, which is not supported; {}{}", wanted.name, found.stored_type,
               types, reader);
}

// Old programs store a bias of zeros beside every matrix.
bool is_zero_bias(const std::string& name, const IndexedTensor& tensor) {
  return name.ends_with(".bias") && !tensor.value.empty() &&
         std::ranges::all_of(tensor.value, [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace

void name_as_stored(Model& model, const WeightIndex& index) {
  const auto apart = [&](const WeightPiece& piece) {
    return piece.fused.source.module.empty() || holds(index, piece.source) ||
           !holds(index, piece.fused.source);
  };
  for (Parameter* parameter : model.parameters()) {
    if (std::ranges::any_of(parameter->spec.pieces, apart)) continue;
    for (WeightPiece& piece : parameter->spec.pieces) {
      const FusedTensor fused = std::exchange(piece.fused, {});
      piece.source = fused.source;
      piece.source_shape = fused.shape;
      piece.rows = {piece.rows.begin + fused.first_row, piece.rows.end + fused.first_row};
    }
  }
}

std::unique_ptr<Model> make_stored_model(const ModelConfig& config, const RankPlan& plan,
                                         const WeightIndex& index) {
  std::unique_ptr<Model> model = make_model(config, plan);
  name_as_stored(*model, index);
  return model;
}

void check_names(Model& whole, const WeightIndex& index, const QuantScheme& scheme) {
  if (scheme.description().empty()) refuse_unexplained(index);
  refuse_mixed_experts(whole, index);
  std::map<std::string, ExpectedTensor> wanted;
  for (const Parameter* parameter : whole.parameters())
    for (const WeightPiece& piece : parameter->spec.pieces)
      for (ExpectedTensor& tensor : stored_weight(scheme, parameter->spec, piece, &index)->tensors())
        wanted.emplace(tensor.name, std::move(tensor));

  std::set<std::string> missing, extra;
  for (const auto& [name, tensor] : wanted) {
    const auto entry = index.tensors.find(name);
    if (entry == index.tensors.end())
      missing.insert(name);
    else
      check_tensor(tensor, entry->second.info, scheme);
  }
  for (const auto& [name, tensor] : index.tensors)
    if (!wanted.contains(name) && !whole.ignores(name) && !is_zero_bias(name, tensor) && !is_kv_scale(name))
      extra.insert(name);
  if (!missing.empty())
    throw Error(ExitCode::input,
                fmt::format("the checkpoint lacks {} of the model's tensors: {}{}", missing.size(),
                            some_of(missing), extra.empty() ? "" : "; it holds instead: " + some_of(extra)),
                scheme.description().empty()
                    ? "config.json says which tensors there must be"
                    : fmt::format("config.json says which tensors there must be ({})", scheme.description()),
                "get config.json and all *.safetensors files of one model, in the names of transformers");
  if (!extra.empty())
    refuse_files("the checkpoint holds {} that the model has no place for: {}",
                 counted(extra.size(), "tensor"), some_of(extra));
  scheme.check(index);
  const Parameters parameters = whole.parameters();
  check_grouped(scheme, parameters, index);
  for (const Parameter* parameter : parameters)
    if (parameter->spec.grouped.empty()) planned_weight(scheme, parameter->spec, DType::bf16, &index);
}

}  // namespace maniple
