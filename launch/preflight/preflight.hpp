// Before anything is loaded: gathers the facts of all ranks, checks the launch and reports findings.
#pragma once

#include <launch/preflight/checks.hpp>

#include <string>
#include <vector>

namespace maniple {

std::vector<std::vector<int>> masks_of(const JobFacts& job);

struct Preflight {
  JobFacts job;
  std::vector<CheckResult> results;
};

// Collective. results_bytes: rank 0's.
Preflight run_preflight(World& world, const JobOptions& options, const JobPlan& plan,
                        uint64_t results_bytes = 0);

// Rank, node, device, CPUs and place in the grid, one line per rank; only the first `most` ranks.
std::string rank_table(const JobFacts& job, size_t most = SIZE_MAX);
// generate's text: the warnings, and, unless quiet, the number of checks without a finding.
std::string preflight_text(const std::vector<CheckResult>& results, bool quiet = false);

}  // namespace maniple
