// Who reads which stored bytes, and who gets them: pure arithmetic, the same on every rank.
#pragma once

#include <kernels/tensor/shape.hpp>
#include <runtime/checkpoint/weight_index.hpp>

namespace maniple {

// A rectangle of a stored tensor; a vector has one column.
struct StoredBox {
  std::string tensor;
  IndexRange rows, columns;
};
using WeightNeeds = std::vector<StoredBox>;  // of one member in a replica, which is the same in all replicas

struct Delivery {
  IndexRange columns;
  std::vector<int> to;  // members
};
// Whole rows of a tensor, which one member reads for all of its replica.
struct ReadUnit {
  const IndexedTensor* tensor = nullptr;  // of the index
  IndexRange rows;
  int reader = 0;                    // one of those that get something
  std::vector<Delivery> deliveries;  // no two of the same columns

  size_t row_bytes() const { return tensor->info.byte_size / static_cast<uint64_t>(tensor->info.shape[0]); }
  size_t bytes() const { return static_cast<size_t>(rows.size()) * row_bytes(); }  // that are read
  size_t bytes(IndexRange columns) const {
    return static_cast<size_t>(rows.size() * columns.size()) * size_of(*tensor->info.dtype);
  }
};
// What the members of one replica read and hand on, among themselves and then each to its like in the others.
struct ReadRound {
  int replica = 0;
  std::vector<ReadUnit> units;
};

// So many storage clients serve a large job well; more would only wait for each other.
constexpr int most_reading_replicas = 16;

// needs: by member. Every row that anybody needs is in one unit of one round, so that it is read once a job;
// within a round no rank holds more than round_bytes, unless a single row is longer. The replicas take turns,
// as do the members that need the same rows, and all members advance at the same pace. A round that stays in a
// core's cache until it is packed loads faster than a larger one.
std::vector<ReadRound> plan_reads(std::span<const WeightNeeds> needs, const WeightIndex& index, int replicas,
                                  uint64_t round_bytes = uint64_t{1} << 20);

}  // namespace maniple
