// Before anything is loaded: the ranks tell each other what they know, and what is wrong with the launch is
// said.
#pragma once

#include <launch/preflight/checks.hpp>

#include <string>
#include <vector>

namespace maniple {

// Which processors a rank works on.
struct CpuShare {
  int threads = 1;
  std::vector<int> cpus;  // logical CPUs to pin the threads to, one each; empty: CPUs are shared, leave the
                          // threads to the system
};

// masks: the logical CPUs that each rank may use, ascending. Ranks of a node with the same mask share it
// evenly. `threads` overrides the number.
CpuShare share_cpus(std::span<const std::vector<int>> masks, const std::vector<RankLocation>& locations,
                    int rank, std::optional<int> threads);

struct Preflight {
  JobFacts job;
  std::vector<CheckResult> results;
  CpuShare share;  // of this rank
};

// Collective. results_bytes: rank 0's.
Preflight run_preflight(World& world, const JobOptions& options, const JobPlan& plan,
                        uint64_t results_bytes = 0);

// Rank, node, device, CPUs and place in the grid, a line a rank; of more than `most` ranks the first ones.
std::string rank_table(const JobFacts& job, size_t most = SIZE_MAX);
// What `generate` says: the warnings, and unless it is quiet how many checks had nothing to say.
std::string preflight_text(const std::vector<CheckResult>& results, bool quiet = false);

}  // namespace maniple
