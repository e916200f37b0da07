#include <runtime/checkpoint/loading/tensor_reader.hpp>

#include <algorithm>
#include <cstring>

namespace maniple {

std::vector<std::byte> TensorReader::read(const IndexedTensor& tensor, const IndexRange& rows) {
  const StoredMatrix matrix = matrix_of(tensor.info);
  const size_t row_bytes = static_cast<size_t>(matrix.columns) * matrix.item_bytes;
  std::vector<std::byte> value(static_cast<size_t>(rows.size()) * row_bytes), piece;
  for (const Extent& extent : tensor.extents) {
    const IndexRange both{std::max(rows.begin, extent.rows.begin), std::min(rows.end, extent.rows.end)};
    if (both.begin >= both.end) continue;
    piece.resize(static_cast<size_t>(both.size() * extent.row_bytes));
    file(extent.file)
        .read(extent.offset + static_cast<uint64_t>((both.begin - extent.rows.begin) * extent.row_bytes),
              piece);
    for (int64_t row = both.begin; row < both.end; ++row)
      std::memcpy(&value[static_cast<size_t>(row - rows.begin) * row_bytes +
                         static_cast<size_t>(extent.columns.begin) * matrix.item_bytes],
                  &piece[static_cast<size_t>((row - both.begin) * extent.row_bytes)],
                  static_cast<size_t>(extent.columns.size()) * matrix.item_bytes);
  }
  return value;
}

InputFile& TensorReader::file(uint32_t number) {
  const auto found = files_.find(number);
  return found != files_.end() ? found->second
                               : files_.emplace(number, open_same(index_.files[number])).first->second;
}

}  // namespace maniple
