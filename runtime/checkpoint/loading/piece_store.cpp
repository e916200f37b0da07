#include <kernels/reference/rows.hpp>
#include <runtime/checkpoint/loading/piece_store.hpp>
#include <runtime/checkpoint/loading/raw_rows.hpp>

#include <algorithm>

namespace maniple {
void store_rows(Ops& ops, Parameter& parameter, const WeightPiece& piece, int64_t row, RawRows raw) {
  DecodedRows chosen;
  int64_t before = row - piece.rows.begin;
  if (piece.transposed) {
    raw.values = transposed(raw.values, piece.row_offset, piece.row_step, chosen.values);
  } else if (const int64_t step = piece.row_step; step > 1) {
    const int64_t skipped = ((piece.row_offset - before) % step + step) % step;
    if (skipped >= raw.values.shape[0]) return;
    raw = every_row(raw, skipped, step, chosen);
    before = (before + skipped) / step;
  }
  if (parameter.spec.role == WeightRole::matrix) {
    std::vector<std::byte> padded;
    raw.values = padded_columns(raw.values, piece.padding, padded);
    return ops.pack(parameter.matrix, piece.local_row + before, raw);
  }
  const std::vector<float> wide = reference::read(raw.values, 0, raw.values.shape.elements());
  const TensorView rows = parameter.vector.view().rows(piece.local_row + before, raw.values.shape[0]);
  ops.device().upload(rows.data, reinterpret_cast<const std::byte*>(wide.data()), rows.bytes());
}

int64_t rows_at_once(const WeightPiece& piece) {
  constexpr int64_t elements = int64_t{1} << 20;
  if (piece.transposed) return piece.rows.size();
  return std::max<int64_t>(32, elements / std::max<int64_t>(piece.columns.size(), 1) / 32 * 32);
}

PieceStore::PieceStore(Model& model, Ops& ops, const WeightIndex& index, const QuantScheme& scheme,
                       std::atomic<uint32_t>& blocks)
    : ops_(ops), index_(index), blocks_(blocks) {
  for (Parameter* parameter : model.parameters())
    for (const WeightPiece& source : parameter->spec.pieces) {
      if (source.rows.size() == 0 || source.columns.size() == 0) continue;
      Piece piece{parameter, &source, stored_weight(scheme, parameter->spec, source, &index), {}, {}, 0};
      piece.needs = piece.stored->needs({source.rows, source.columns});
      piece.held.resize(piece.needs.size());
      for (size_t need = 0; need < piece.needs.size(); ++need) {
        piece.missing_rows += piece.needs[need].rows.size();
        by_tensor_.emplace(&index.tensors.at(piece.needs[need].tensor), std::pair(pieces_.size(), need));
      }
      pieces_.push_back(std::move(piece));
    }
}

void PieceStore::take(const IndexedTensor& tensor, const Box& box, std::span<const std::byte> bytes) {
  const auto [begin, end] = by_tensor_.equal_range(&tensor);
  for (auto entry = begin; entry != end; ++entry) {
    Piece& piece = pieces_[entry->second.first];
    const StoredBox& need = piece.needs[entry->second.second];
    if (need.columns != box.columns || !need.rows.contains(box.rows.begin)) continue;
    const StoredPart part{&tensor.info, box, bytes};
    if (piece.needs.size() == 1 && !piece.source->transposed)
      decode(piece, box.rows, {&part, 1});
    else
      hold(piece, entry->second.second, tensor.info, box.rows, bytes);
  }
}

void PieceStore::hold(Piece& piece, size_t need, const TensorInfo& info, IndexRange rows,
                      std::span<const std::byte> bytes) {
  const StoredBox& box = piece.needs[need];
  const size_t row_bytes = static_cast<size_t>(box.columns.size()) * info.item_bytes();
  std::vector<std::byte>& held = piece.held[need];
  held.resize(static_cast<size_t>(box.rows.size()) * row_bytes);
  std::ranges::copy(bytes, held.begin() + (rows.begin - box.rows.begin) * static_cast<int64_t>(row_bytes));
  piece.missing_rows -= rows.size();
  if (piece.missing_rows > 0) return;
  std::vector<StoredPart> parts;
  for (size_t i = 0; i < piece.needs.size(); ++i)
    parts.push_back({&index_.tensors.at(piece.needs[i].tensor).info,
                     {piece.needs[i].rows, piece.needs[i].columns},
                     piece.held[i]});
  const int64_t step = rows_at_once(*piece.source);
  for (int64_t row = piece.source->rows.begin; row < piece.source->rows.end; row += step)
    decode(piece, {row, std::min(row + step, piece.source->rows.end)}, parts);
  piece.held.clear();
  piece.held.shrink_to_fit();
}

void PieceStore::decode(const Piece& piece, IndexRange rows, std::span<const StoredPart> parts) {
  RawRows raw = piece.stored->decode({rows, piece.source->columns}, parts, memory_);
  std::vector<std::byte> numbers;
  if (piece.parameter->spec.decoded)
    raw = numbers_of(raw, piece.stored->quantization(), piece.source->columns.begin, numbers);
  store_rows(ops_, *piece.parameter, *piece.source, rows.begin, raw);
  ++blocks_;
}

}  // namespace maniple
