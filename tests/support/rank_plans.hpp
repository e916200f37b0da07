// Plans for ranks without a job.
#pragma once

#include <parallel/rank_plan.hpp>

namespace maniple::testing {

// A rank of one replica that holds all layers.
inline RankPlan plan_of(TensorRank tensor, int expert = 1) {
  RankPlan plan;
  plan.grid.tensor = tensor.size;
  plan.grid.expert = expert;
  plan.position.tensor = tensor.rank;
  plan.groups = groups_of(plan.grid, tensor.rank);
  return plan;
}

}  // namespace maniple::testing
