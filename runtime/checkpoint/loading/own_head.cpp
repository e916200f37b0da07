#include <runtime/checkpoint/loading/own_head.hpp>
#include <runtime/checkpoint/loading/tensor_reader.hpp>

#include <algorithm>

namespace maniple {
namespace {

constexpr std::string_view table = "model.embed_tokens.weight", head = "lm_head.weight";

// Packed alike, their checksums decide; else their bytes, up to the first difference.
bool same_numbers(const WeightIndex& index, const IndexedTensor& a, const IndexedTensor& b) {
  if (a.info.stored_type != b.info.stored_type || a.info.shape != b.info.shape) return false;
  const auto same_hash = [](const Extent& x, const Extent& y) {
    return x.rows == y.rows && x.columns == y.columns && x.hash && x.hash == y.hash;
  };
  if (std::ranges::equal(a.extents, b.extents, same_hash)) return true;
  constexpr int64_t part_bytes = int64_t{4} << 20;
  TensorReader reader(index);
  const int64_t rows = matrix_of(a.info).rows;
  const int64_t part = std::max<int64_t>(1, part_bytes * rows / static_cast<int64_t>(a.info.byte_size + 1));
  for (int64_t row = 0; row < rows; row += part) {
    const IndexRange range{row, std::min(rows, row + part)};
    if (reader.read(a, range) != reader.read(b, range)) return false;
  }
  return true;
}

bool is_quantised(const WeightIndex& index) {
  return std::ranges::any_of(index.tensors, [](const auto& tensor) {
    return tensor.first.starts_with("lm_head.") && tensor.first != head && tensor.first != "lm_head.bias";
  });
}

}  // namespace

std::string settle_head(ModelConfig& config, WeightIndex& index) {
  if (!config.tie_word_embeddings) return {};
  const auto own = index.tensors.find(head), embedding = index.tensors.find(table);
  const bool quantised = is_quantised(index);
  if (own != index.tensors.end() && embedding == index.tensors.end() && !quantised) {
    auto tensor = index.tensors.extract(own);
    tensor.key() = table;
    index.tensors.insert(std::move(tensor));
    return fmt::format("{} is not in the checkpoint; the model is tied, so {} is read in its place", table,
                       head);
  }
  const bool differs = own != index.tensors.end() && embedding != index.tensors.end() &&
                       !same_numbers(index, embedding->second, own->second);
  if (!quantised && !differs) return {};
  config.tie_word_embeddings = false;
  return fmt::format("config.json says tie_word_embeddings, but the checkpoint has a {} {}: it is used",
                     quantised ? "quantised" : "different", quantised ? "lm_head" : head);
}

}  // namespace maniple
