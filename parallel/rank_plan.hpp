// One rank's part of the plan of the job (runtime/job_plan), as layers take it: its place, its groups, its
// part of the model. The default is a rank that is alone and holds the whole model.
#pragma once

#include <kernels/tensor/shape.hpp>
#include <parallel/process_grid.hpp>

#include <optional>

namespace maniple {

// A rank's place in its tensor group: what sharding needs to know.
struct TensorRank {
  int rank = 0;
  int size = 1;
};

struct RankPlan {
  GridSize grid;
  GridPosition position;
  GroupRanks groups;
  std::optional<IndexRange> layers;  // of the model; absent: all of them

  TensorRank tensor() const { return {position.tensor, grid.tensor}; }
  bool embeds() const { return position.pipeline == 0; }                   // its input is token ids
  bool samples() const { return position.pipeline + 1 == grid.pipeline; }  // its output is logits
};

}  // namespace maniple
