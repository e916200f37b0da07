// How the experts of a model were used, from the counters of all ranks.
#pragma once

#include <runtime/job_plan.hpp>
#include <runtime/service.hpp>

#include <chrono>
#include <span>
#include <vector>

namespace maniple {

// of_ranks: by rank. Replicas add up; the ranks of a tensor group saw the same tokens: throws Error (fault) where they did
// not choose the same experts.
std::vector<ExpertLoad> expert_load(const JobPlan& plan, const ExpertsConfig& experts,
                                    std::span<const ExpertCounts> of_ranks);

// The load while a run is served, on the coordinator's thread. The references must outlive it.
class ExpertWatch {
 public:
  using Clock = std::chrono::steady_clock;

  ExpertWatch(Coordinator& coordinator, const JobPlan& plan, const ExpertsConfig& experts)
      : coordinator_(coordinator), plan_(plan), experts_(experts) {}

  // Call it again and again: asks the ranks every 30 s, and returns what they said last; empty before they did, and of a
  // model without experts.
  const std::vector<ExpertLoad>& look(Clock::time_point now = Clock::now());

 private:
  static constexpr std::chrono::seconds interval{30};

  Coordinator& coordinator_;
  const JobPlan& plan_;
  const ExpertsConfig& experts_;
  Clock::time_point asked_ = Clock::now();
  std::vector<ExpertLoad> loads_;
};

}  // namespace maniple
