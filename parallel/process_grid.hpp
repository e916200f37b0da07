// Where a rank stands: pure arithmetic, no MPI. World rank = ((data * pipeline_size) + pipeline) *
// tensor_size + tensor.
#pragma once

#include <vector>

namespace maniple {

struct GridSize {
  int tensor = 1;
  int pipeline = 1;
  int data = 1;

  int ranks() const { return tensor * pipeline * data; }
  bool operator==(const GridSize&) const = default;
};

struct GridPosition {
  int tensor = 0;
  int pipeline = 0;
  int data = 0;

  bool operator==(const GridPosition&) const = default;
};

class ProcessGrid {
 public:
  // The data size follows: world_size / (tensor * pipeline). Throws Error (usage) when it does not divide,
  // naming the sizes that would.
  static ProcessGrid of(int world_size, int tensor_size, int pipeline_size = 1);

  const GridSize& size() const { return size_; }
  GridPosition position(int rank) const;
  int rank(const GridPosition& position) const;

  // World ranks of the group of `rank` along one axis, in the order of that axis.
  std::vector<int> tensor_group(int rank) const;
  std::vector<int> pipeline_group(int rank) const;
  std::vector<int> data_group(int rank) const;  // same shard of the model in every replica
  // All ranks of a replica, and the one that answers for it: tensor rank 0 of the last stage.
  std::vector<int> replica(int data) const;
  int reporter(int data) const;

 private:
  explicit ProcessGrid(const GridSize& size) : size_(size) {}
  GridSize size_;
};

}  // namespace maniple
