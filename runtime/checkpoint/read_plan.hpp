// Which rank reads which stored bytes, and which ranks get them: pure arithmetic, the same on every rank.
#pragma once

#include <kernels/tensor/shape.hpp>
#include <runtime/checkpoint/weight_index.hpp>

#include <span>

namespace maniple {

// A rectangle of a stored tensor; a vector has one column.
struct StoredBox {
  std::string tensor;
  IndexRange rows, columns;
};
using WeightNeeds = std::vector<StoredBox>;  // of one member of a replica, alike in all replicas

// Columns of a unit's rows, and the members that get them.
struct Delivery {
  IndexRange columns;
  std::vector<int> to;  // members
};
// Rows of a tensor that one member reads for all of its replica: whole rows of the extents, which lie side by side.
struct ReadUnit {
  const IndexedTensor* tensor = nullptr;  // of the index
  std::span<const Extent> extents;        // of the tensor
  IndexRange rows;
  int reader = 0;                    // one of the members in deliveries
  std::vector<Delivery> deliveries;  // no two of the same columns

  size_t row_bytes() const {
    int64_t bytes = 0;
    for (const Extent& extent : extents) bytes += extent.row_bytes;
    return static_cast<size_t>(bytes);
  }
  size_t bytes() const { return static_cast<size_t>(rows.size()) * row_bytes(); }  // that are read
  size_t bytes(IndexRange columns) const {
    return static_cast<size_t>(rows.size() * columns.size()) * tensor->info.item_bytes();
  }
};
// The units that one replica reads. Its members exchange the slices; then each of them sends its slices to
// the same member of the other replicas.
struct ReadRound {
  int replica = 0;
  std::vector<ReadUnit> units;
};

// Enough storage clients for a large job; more would only wait for each other.
constexpr int max_reading_replicas = 16;

// needs: by member. Every needed row is in one unit of one round: a job reads it once. Within a round no rank
// holds more than round_bytes, unless a single row is longer. Replicas read in turn, as do members that need
// the same rows, and all members advance at the same pace. Tensors of one module follow each other, wherever they lie. A round that stays in a core's cache until it is
// packed loads faster than a larger one.
std::vector<ReadRound> plan_reads(std::span<const WeightNeeds> needs, const WeightIndex& index, int replicas,
                                  uint64_t round_bytes = uint64_t{1} << 20);

}  // namespace maniple
