// How the experts of a model were used, from the counters of all ranks.
#pragma once

#include <runtime/job_plan.hpp>
#include <runtime/run_summary.hpp>

#include <span>
#include <vector>

namespace maniple {

// of_ranks: RankModel::expert_counts by rank. Replicas add up; the ranks of a tensor group saw the same tokens: throws Error (fault) where they did
// not choose the same experts.
std::vector<ExpertLoad> expert_load(const JobPlan& plan, const ModelConfig& config,
                                    std::span<const std::vector<int32_t>> of_ranks);

}  // namespace maniple
