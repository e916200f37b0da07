#include <layers/models/model.hpp>
#include <runtime/checkpoint/extents.hpp>
#include <runtime/checkpoint/loading/known_tensors.hpp>
#include <runtime/checkpoint/loading/kv_scales.hpp>
#include <runtime/checkpoint/loading/weight_names.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>
#include <runtime/checkpoint/quantization/stored_values.hpp>

#include <cstring>
#include <map>
#include <set>

namespace maniple {
namespace {

class KnownTensors {
 public:
  explicit KnownTensors(const WeightIndex& index) : index_(index) {}

  std::vector<std::byte> read(const IndexedTensor& tensor) {
    const StoredMatrix matrix = matrix_of(tensor.info);
    std::vector<std::byte> value(tensor.info.byte_size), rows;
    for (const Extent& extent : tensor.extents) {
      rows.resize(extent.bytes());
      file(extent.file).read(extent.offset, rows);
      const size_t row_bytes = static_cast<size_t>(extent.columns.size()) * matrix.item_bytes;
      for (int64_t row = 0; row < extent.rows.size(); ++row)
        std::memcpy(
            &value[static_cast<size_t>((extent.rows.begin + row) * matrix.columns + extent.columns.begin) *
                   matrix.item_bytes],
            &rows[static_cast<size_t>(row * extent.row_bytes)], row_bytes);
    }
    return value;
  }

 private:
  InputFile& file(uint32_t number) {
    const auto found = files_.find(number);
    return found != files_.end() ? found->second
                                 : files_.emplace(number, open_same(index_.files[number])).first->second;
  }

  const WeightIndex& index_;
  std::map<uint32_t, InputFile> files_;
};

std::set<std::string> biases_of(Model& model, const WeightIndex& index) {
  name_as_stored(model, index);
  std::set<std::string> names;
  for (const Parameter* parameter : model.parameters())
    for (const WeightPiece& piece : parameter->spec.pieces)
      if (piece.source.part == "bias") names.insert(piece.source.tensor());
  return names;
}

}  // namespace

void read_known_tensors(WeightIndex& index, const ModelConfig& config) {
  KnownTensors known(index);
  for (auto& [name, tensor] : index.tensors)
    if (is_kv_scale(name) && is_scalar(tensor.info)) tensor.value = known.read(tensor);
  const std::unique_ptr<const QuantScheme> scheme = scheme_of(config);
  if (scheme->description().empty()) return;
  const std::set<std::string> biases = biases_of(*make_model(config, {}), index);
  for (auto& [name, tensor] : index.tensors)
    if (scheme->decides(name))
      tensor.value = scheme->condensed(name, known.read(tensor));
    else if (!is_kv_scale(name) &&
             (is_scalar(tensor.info) || (name.ends_with(".bias") && !biases.contains(name))))
      tensor.value = known.read(tensor);
}

}  // namespace maniple
