#include <kernels/support/check.hpp>
#include <kernels/support/counted.hpp>
#include <runtime/checkpoint/extents.hpp>
#include <runtime/checkpoint/json_fields.hpp>
#include <runtime/checkpoint/safetensors.hpp>

#include <algorithm>
#include <tuple>

namespace maniple {

namespace {

struct Range {
  uint64_t begin, end;
  const std::string* tensor;  // or the name of a file
  int chunk;                  // -1: a file
};

std::string name_of(const Range& range) {
  return range.chunk < 0 ? *range.tensor
                         : fmt::format("tensor {}, chunk {}", shown(*range.tensor), range.chunk);
}

int64_t parts_of(int64_t size, int64_t part) { return size / part + (size % part != 0); }

}  // namespace

StoredMatrix matrix_of(const TensorInfo& tensor) {
  const uint64_t item = item_bytes_of(tensor.stored_type).value_or(0);
  if (tensor.byte_size == 0) return {0, 0, std::max<uint64_t>(item, 1)};
  if (item == 0) return {1, static_cast<int64_t>(tensor.byte_size), 1};
  const auto elements = static_cast<int64_t>(tensor.byte_size / item);
  int64_t columns = 1;
  for (size_t d = tensor.shape.size() > 2 ? 2 : 1; d < tensor.shape.size(); ++d) columns *= tensor.shape[d];
  return {elements / columns, columns, item};
}

std::vector<Extent> whole_extent(const TensorInfo& tensor, uint32_t file, uint64_t offset) {
  const StoredMatrix matrix = matrix_of(tensor);
  if (matrix.rows == 0) return {};
  return {{{0, matrix.rows},
           {0, matrix.columns},
           matrix.columns * static_cast<int64_t>(matrix.item_bytes),
           file,
           offset,
           {}}};
}

std::vector<Extent> extents_of(const TensorInfo& tensor, const PackedTensor& packed, uint32_t file,
                               uint64_t file_size, const std::string& where) {
  const StoredMatrix matrix = matrix_of(tensor);
  auto [chunk_rows, chunk_columns] = std::pair(packed.chunk_rows, packed.chunk_columns);
  if (matrix.rows == 0 && packed.offsets.empty()) return {};
  // Earlier versions cut a tensor of four dimensions into other rows, and none of them into chunks.
  if (packed.offsets.size() == 1 && tensor.shape.size() > 3)
    std::tie(chunk_rows, chunk_columns) = std::tie(matrix.rows, matrix.columns);
  const bool fits =
      chunk_rows >= 1 && chunk_rows <= matrix.rows && chunk_columns >= 1 && chunk_columns <= matrix.columns;
  const int64_t down = fits ? parts_of(matrix.rows, chunk_rows) : 0,
                across = fits ? parts_of(matrix.columns, chunk_columns) : 0;
  int64_t count = 0;
  if (!fits || __builtin_mul_overflow(down, across, &count) ||
      count != static_cast<int64_t>(packed.offsets.size()))
    fail(ExitCode::input, "{}: {} of {} x {} do not make up its {} x {} values", where,
         counted(packed.offsets.size(), "chunk"), chunk_rows, chunk_columns, matrix.rows, matrix.columns);
  std::vector<Extent> extents;
  const int64_t row_bytes = chunk_columns * static_cast<int64_t>(matrix.item_bytes);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = i / across * chunk_rows, column = i % across * chunk_columns;
    const Extent extent{{row, std::min(row + chunk_rows, matrix.rows)},
                        {column, std::min(column + chunk_columns, matrix.columns)},
                        row_bytes,
                        file,
                        static_cast<uint64_t>(packed.offsets[static_cast<size_t>(i)]),
                        Checksum{packed.hashes[static_cast<size_t>(i)], packed.hashed_by}};
    const auto bytes =
        static_cast<uint64_t>(row_bytes * chunk_rows);  // at the edges too: no more than the tensor's
    if (extent.offset < user_block_bytes || bytes > file_size || extent.offset > file_size - bytes)
      fail(ExitCode::input, "{}, chunk {}: its {} at byte {} pass the end of the file at {}", where, i,
           counted(bytes, "byte"), extent.offset, file_size);
    extents.push_back(extent);
  }
  return extents;
}

void check_apart(const WeightIndex& index, const PackedIndex& packed, const std::string& where) {
  std::vector<Range> ranges;
  for (const auto& [name, bytes] : packed.files)
    ranges.push_back({bytes.offset, bytes.offset + bytes.size, &name, -1});
  for (const auto& [name, file] : packed.safetensors)
    ranges.push_back({file.header.offset, file.header.offset + file.header.size, &name, -1});
  for (const auto& [name, tensor] : index.tensors)
    for (size_t i = 0; i < tensor.extents.size(); ++i)
      ranges.push_back({tensor.extents[i].offset, tensor.extents[i].offset + tensor.extents[i].bytes(), &name,
                        static_cast<int>(i)});
  std::erase_if(ranges, [](const Range& range) { return range.begin == range.end; });
  std::ranges::sort(ranges, {}, &Range::begin);
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].begin < ranges[i - 1].end)
      fail(ExitCode::input, "{}: {} overlaps {}", where, name_of(ranges[i]), name_of(ranges[i - 1]));
}

}  // namespace maniple
