#include <kernels/support/counted.hpp>
#include <runtime/checkpoint/weight_names.hpp>

#include <fmt/format.h>

#include <algorithm>
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
void refuse_mixed_experts(Model& model, const WeightIndex& index) {
  std::string alone, fused;
  for (const Parameter* parameter : model.parameters())
    for (const WeightPiece& piece : parameter->spec.pieces) {
      if (piece.fused.shape.rank() < 3) continue;
      if (index.tensors.contains(piece.source)) alone = piece.source;
      if (index.tensors.contains(piece.fused.name)) fused = piece.fused.name;
    }
  if (!alone.empty() && !fused.empty())
    fail(ExitCode::input, "the checkpoint holds experts one by one ({}) and fused ({}); one form is read",
         alone, fused);
}

}  // namespace

void name_as_stored(Model& model, const WeightIndex& index) {
  const auto apart = [&](const WeightPiece& piece) {
    return piece.fused.name.empty() || index.tensors.contains(piece.source) ||
           !index.tensors.contains(piece.fused.name);
  };
  for (Parameter* parameter : model.parameters()) {
    if (std::ranges::any_of(parameter->spec.pieces, apart)) continue;
    for (WeightPiece& piece : parameter->spec.pieces) {
      const FusedTensor fused = std::exchange(piece.fused, {});
      piece.source = fused.name;
      piece.source_shape = fused.shape;
      piece.rows = {piece.rows.begin + fused.first_row, piece.rows.end + fused.first_row};
    }
  }
}

void check_names(Model& model, const WeightIndex& index) {
  refuse_mixed_experts(model, index);
  name_as_stored(model, index);
  std::map<std::string, Shape> wanted;
  for (const Parameter* parameter : model.parameters())
    for (const WeightPiece& piece : parameter->spec.pieces) wanted.emplace(piece.source, piece.source_shape);

  std::set<std::string> missing, extra;
  for (const auto& [name, shape] : wanted) {
    const auto entry = index.tensors.find(name);
    if (entry == index.tensors.end()) {
      missing.insert(name);
      continue;
    }
    const TensorInfo& tensor = entry->second.info;
    Shape found = shape;
    bool fits = static_cast<int>(tensor.shape.size()) == shape.rank();
    for (int d = 0; fits && d < shape.rank(); ++d) found[d] = tensor.shape[static_cast<size_t>(d)];
    if (!fits || !(found == shape))
      fail(ExitCode::input, "tensor {} has the shape [{}] in the checkpoint, but config.json asks for {}",
           name, fmt::join(tensor.shape, ", "), to_string(shape));
    if (!tensor.dtype)
      fail(ExitCode::input, "tensor {} is stored as {}, which is not supported; BF16, F16 and F32 are", name,
           tensor.stored_type);
  }
  for (const auto& [name, tensor] : index.tensors)
    if (!wanted.contains(name) && !model.ignores(name)) extra.insert(name);
  if (!missing.empty())
    throw Error(ExitCode::input,
                fmt::format("the checkpoint lacks {} of the model's tensors: {}{}", missing.size(),
                            some_of(missing), extra.empty() ? "" : "; it holds instead: " + some_of(extra)),
                "config.json says which tensors there must be",
                "get config.json and all *.safetensors files of one model, in the names of transformers");
  if (!extra.empty())
    fail(ExitCode::input, "the checkpoint holds {} that the model has no place for: {}",
         counted(extra.size(), "tensor"), some_of(extra));
}

}  // namespace maniple
