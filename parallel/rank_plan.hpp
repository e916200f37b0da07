// One rank's part of the job plan (runtime/job_plan), as the layers use it: its position, its groups, its
// range of layers. The default is a single rank that holds the whole model.
#pragma once

#include <kernels/attention_batch.hpp>
#include <parallel/process_grid.hpp>

#include <optional>

namespace maniple {

// A rank's place in its tensor group: all that sharding needs.
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
  ContextShare context() const { return {position.tensor % grid.context, grid.context}; }
  // The rank's range of experts, and its part of each.
  TensorRank expert() const { return {position.tensor / expert_part().size, grid.expert}; }
  TensorRank expert_part() const {
    const int parts = grid.tensor / grid.expert;
    return {position.tensor % parts, parts};
  }
  bool is_first_stage() const { return position.pipeline == 0; }                 // its input is token ids
  bool is_last_stage() const { return position.pipeline + 1 == grid.pipeline; }  // its output is logits
};

}  // namespace maniple
