#include <launch/tools/convert/tensor_copy.hpp>
#include <runtime/checkpoint/stream_hash.hpp>

#include <algorithm>
#include <cstring>
#include <set>

namespace maniple {
namespace {

constexpr uint64_t block_bytes = uint64_t{1} << 20;

class TensorCopy {
 public:
  TensorCopy(const TensorInfo& tensor, const TensorSource& from, const TensorTarget& to)
      : matrix_(matrix_of(tensor)),
        from_(from),
        to_(to),
        read_(hashes_of(from.extents)),
        written_(hashes_of(to.extents)) {}

  CopiedHashes run() {
    std::set<int64_t> cuts{matrix_.rows};
    for (const Extent& extent : from_.extents) cuts.insert(extent.rows.begin);
    for (const Extent& extent : to_.extents) cuts.insert(extent.rows.begin);
    const auto most =
        std::max<int64_t>(1, static_cast<int64_t>(block_bytes) / std::max<int64_t>(row_bytes(), 1));
    for (auto begin = cuts.begin(), end = std::next(begin); end != cuts.end(); ++begin, ++end)
      for (int64_t row = *begin; row < *end; row += most) copy({row, std::min(row + most, *end)});
    return {values(read_), values(written_)};
  }

 private:
  int64_t row_bytes() const { return matrix_.columns * static_cast<int64_t>(matrix_.item_bytes); }

  static std::vector<StreamHash> hashes_of(std::span<const Extent> extents) {
    std::vector<StreamHash> hashes;
    for (const Extent& extent : extents) hashes.emplace_back(extent.hash.value_or(Checksum{}).kind);
    return hashes;
  }

  static std::vector<uint64_t> values(const std::vector<StreamHash>& hashes) {
    std::vector<uint64_t> values;
    for (const StreamHash& hash : hashes) values.push_back(hash.value());
    return values;
  }

  static uint64_t place_of(const Extent& extent, int64_t row) {
    return extent.offset + static_cast<uint64_t>((row - extent.rows.begin) * extent.row_bytes);
  }

  // True if the extent's rows are whole rows of the tensor.
  bool is_whole(const Extent& extent) const { return extent.row_bytes == row_bytes(); }

  // rows: of one extent above each other, in both layouts.
  void copy(IndexRange rows) {
    rows_.resize(static_cast<size_t>(rows.size() * row_bytes()));
    for (size_t i = 0; i < from_.extents.size(); ++i)
      if (from_.extents[i].rows.contains(rows.begin)) read(from_.extents[i], rows, read_[i]);
    for (size_t i = 0; i < to_.extents.size(); ++i)
      if (to_.extents[i].rows.contains(rows.begin)) write(to_.extents[i], rows, written_[i]);
  }

  void read(const Extent& extent, IndexRange rows, StreamHash& hash) {
    std::vector<std::byte>& bytes = is_whole(extent) ? rows_ : part_;
    bytes.resize(static_cast<size_t>(rows.size() * extent.row_bytes));
    from_.file->read(place_of(extent, rows.begin), bytes);
    if (extent.hash) hash.add(bytes);
    if (is_whole(extent) || !to_.file) return;
    for_each_row(extent, rows,
                 [](std::byte* whole, std::byte* part, size_t size) { std::memcpy(whole, part, size); });
  }

  void write(const Extent& extent, IndexRange rows, StreamHash& hash) {
    if (!is_whole(extent)) {
      part_.assign(static_cast<size_t>(rows.size() * extent.row_bytes), std::byte{});
      for_each_row(extent, rows,
                   [](std::byte* whole, std::byte* part, size_t size) { std::memcpy(part, whole, size); });
    }
    const std::vector<std::byte>& bytes = is_whole(extent) ? rows_ : part_;
    to_.file->write(place_of(extent, rows.begin), bytes);
    if (extent.hash) hash.add(bytes);
  }

  void for_each_row(const Extent& extent, IndexRange rows, auto action) {
    const size_t item = matrix_.item_bytes, begin = static_cast<size_t>(extent.columns.begin) * item;
    for (size_t row = 0; row < static_cast<size_t>(rows.size()); ++row)
      action(&rows_[row * static_cast<size_t>(row_bytes()) + begin],
             &part_[row * static_cast<size_t>(extent.row_bytes)],
             static_cast<size_t>(extent.columns.size()) * item);
  }

  StoredMatrix matrix_;
  TensorSource from_;
  TensorTarget to_;
  std::vector<StreamHash> read_, written_;  // by extent
  std::vector<std::byte> rows_, part_;      // whole rows; those of an extent
};

bool is_dense(const TensorInfo& tensor, std::span<const Extent> extents) {
  return extents.size() == 1 && extents[0].bytes() == tensor.byte_size;
}

}  // namespace

// Dense on both sides: without regard to rows, which may be long.
CopiedHashes copy_tensor(const TensorInfo& tensor, const TensorSource& from, const TensorTarget& to) {
  if (!is_dense(tensor, from.extents) || (to.file && !is_dense(tensor, to.extents)))
    return TensorCopy(tensor, from, to).run();
  const Extent &first = from.extents[0], &last = to.file ? to.extents[0] : first;
  const HashKind kind = (first.hash ? first : last).hash.value_or(Checksum{}).kind;
  const uint64_t hash = copy_bytes(*from.file, first.offset, tensor.byte_size, to.file, last.offset, kind);
  return {{hash}, {hash}};
}

uint64_t copy_bytes(const InputFile& from, uint64_t from_offset, uint64_t size, const RangeFile* to,
                    uint64_t to_offset, HashKind kind) {
  StreamHash hash(kind);
  std::vector<std::byte> bytes(std::min(size, block_bytes));
  for (uint64_t done = 0; done < size; done += bytes.size()) {
    bytes.resize(std::min(block_bytes, size - done));
    from.read(from_offset + done, bytes);
    hash.add(bytes);
    if (to) to->write(to_offset + done, bytes);
  }
  return hash.value();
}

}  // namespace maniple
