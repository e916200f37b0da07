// Before anything is loaded: the ranks tell each other what they know, and what is wrong with the launch is
// said.
#pragma once

#include <launch/preflight/checks.hpp>
#include <launch/preflight/cpu_share.hpp>
#include <layers/models/model_config.hpp>

#include <string>
#include <vector>

namespace maniple {

struct Preflight {
  Situation situation;
  std::vector<CheckResult> results;
  CpuShare share;  // of this rank
};

// Collective. model: null where the options name none. results_bytes: rank 0's.
Preflight run_preflight(World& world, const JobOptions& options, const ModelConfig* model = nullptr,
                        uint64_t results_bytes = 0);

// Rank, node, device, CPUs and place in the grid, a line a rank; of more than `most` ranks the first ones.
std::string rank_table(const Situation& situation, size_t most = SIZE_MAX);
// What `generate` says: the warnings, and how many checks had nothing to say.
std::string preflight_text(const std::vector<CheckResult>& results);

}  // namespace maniple
