// Before anything is loaded: gathers the facts of all ranks, checks the launch and reports findings.
#pragma once

#include <kernels/backend.hpp>
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

std::vector<std::vector<int>> masks_of(const JobFacts& job);
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

// This rank's backend on its share. Throws Error (preflight) if there is no GPU for it.
Backend backend_of(const World& world, const EngineOptions& engine, const CpuShare& share);

// Rank, node, device, CPUs and place in the grid, one line per rank; only the first `most` ranks.
std::string rank_table(const JobFacts& job, size_t most = SIZE_MAX);
// generate's text: the warnings, and, unless quiet, the number of checks without a finding.
std::string preflight_text(const std::vector<CheckResult>& results, bool quiet = false);

}  // namespace maniple
