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

void TensorReader::read_each(std::vector<IndexedTensor*> tensors, const Take& take) {
  constexpr uint64_t largest_gap = uint64_t{64} << 10, longest_run = uint64_t{4} << 20;
  const auto in_pieces = std::partition(tensors.begin(), tensors.end(), [](const IndexedTensor* tensor) {
    return tensor->extents.size() == 1 && tensor->extents[0].bytes() == tensor->info.byte_size;
  });
  std::for_each(in_pieces, tensors.end(), [&](IndexedTensor* tensor) { take(*tensor, read(*tensor)); });
  tensors.erase(in_pieces, tensors.end());
  const auto place = [](const IndexedTensor* tensor) { return tensor->extents[0]; };
  std::ranges::sort(tensors, {}, [&](const IndexedTensor* tensor) {
    return std::pair(place(tensor).file, place(tensor).offset);
  });
  std::vector<std::byte> run;
  for (auto first = tensors.begin(), last = first; first != tensors.end(); first = last) {
    const uint64_t begin = place(*first).offset;
    uint64_t end = begin;
    const auto joins = [&](const Extent& next) {
      return next.file == place(*first).file && next.offset <= end + largest_gap &&
             next.offset + next.bytes() <= begin + longest_run;
    };
    do end = std::max(end, place(*last).offset + place(*last).bytes());
    while (++last != tensors.end() && joins(place(*last)));
    run.resize(end - begin);
    file(place(*first).file).read(begin, run);
    for (auto tensor = first; tensor != last; ++tensor) {
      const auto value = run.begin() + static_cast<int64_t>(place(*tensor).offset - begin);
      take(**tensor, {value, value + static_cast<int64_t>((*tensor)->info.byte_size)});
    }
  }
}

InputFile& TensorReader::file(uint32_t number) {
  const auto found = files_.find(number);
  return found != files_.end() ? found->second
                               : files_.emplace(number, open_same(index_.files[number])).first->second;
}

}  // namespace maniple
