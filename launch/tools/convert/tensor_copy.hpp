// Copies a tensor from one layout to another, each byte read once.
#pragma once

#include <launch/tools/convert/range_file.hpp>
#include <runtime/checkpoint/extents.hpp>

namespace maniple {

// A file, and where in it a tensor lies.
struct TensorSource {
  const InputFile* file = nullptr;
  std::span<const Extent> extents;
};
struct TensorTarget {
  const RangeFile* file = nullptr;  // null, without extents: the tensor is only read
  std::span<const Extent> extents = {};
};

// The hashes of all extents of one side, in their order.
struct CopiedHashes {
  std::vector<uint64_t> from, to;
};

// Holds a few MiB, or a row where that is longer.
CopiedHashes copy_tensor(const TensorInfo& tensor, const TensorSource& from, const TensorTarget& to);

// Copies a range; to may be null. Returns its hash.
uint64_t copy_bytes(const InputFile& from, uint64_t from_offset, uint64_t size, const RangeFile* to,
                    uint64_t to_offset, HashKind kind = HashKind::xxh64);

}  // namespace maniple
