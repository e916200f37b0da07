// Compares the checksums of a packed model's chunks while a rank stores them.
#pragma once

#include <runtime/checkpoint/read_plan.hpp>
#include <runtime/checkpoint/stream_hash.hpp>

namespace maniple {

// One for each rank. Of the ranks that keep all columns of a chunk, in any replica, one compares its checksum: not the one
// that reads it, because ranks that need the same rows read them in turn. A chunk whose rows or columns ranks share is not
// checked: where a tensor is cut otherwise than the file was.
class ChunkChecks {
 public:
  ChunkChecks(const WeightIndex& index, int member, int replica, int replicas)
      : index_(index), member_(member), replica_(replica), replicas_(replicas) {}

  // Rows that this member keeps, as they arrive. slice: the unit's rows, of the delivery's columns.
  void add(const ReadUnit& unit, const Delivery& delivery, std::span<const std::byte> slice);
  // Fails with ExitCode::input if a chunk had another checksum; names the first.
  void refuse_differences() const;

 private:
  struct Begun {
    int64_t next = 0;  // row
    StreamHash hash;
  };
  bool checks(size_t chunk, const Delivery& delivery) const;

  const WeightIndex& index_;
  const int member_, replica_, replicas_;
  std::map<const Extent*, Begun> begun_;
  const IndexedTensor* damaged_ = nullptr;
  size_t damaged_chunk_ = 0;
};

}  // namespace maniple
