// How the experts of a model were used, from the counters of all ranks.
#pragma once

#include <runtime/job_plan.hpp>
#include <runtime/service.hpp>

#include <span>
#include <string>
#include <vector>

namespace maniple {

// of_ranks: of each rank the bytes of int32 [sparse layers of its stage, experts]. Replicas add up; the ranks of a
// tensor group saw the same tokens: throws Error (fault) where they did not choose the same experts.
std::vector<ExpertLoad> expert_load(const JobPlan& plan, const ExpertsConfig& experts,
                                    std::span<const std::string> of_ranks);

}  // namespace maniple
