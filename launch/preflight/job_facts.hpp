// The facts of all ranks about a launch, and queries for the checks.
#pragma once

#include <launch/options/job_options.hpp>
#include <launch/preflight/facts.hpp>
#include <runtime/job_plan.hpp>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace maniple {

struct JobFacts {
  JobOptions options;  // as asked for; what is in force is in the plan
  JobPlan plan;
  std::vector<RankLocation> locations;
  std::vector<RankFacts> ranks{};
  uint64_t results_bytes = 0;            // that the run directory will need; 0: not known
  std::optional<double> seconds_left{};  // until the job stops itself

  bool cuda_build = true;

  size_t size() const { return ranks.size(); }
  // False in a build without CUDA: such a job is refused.
  bool on_gpus() const { return cuda_build && plan.backend.kind == BackendKind::cuda; }
  // The GPU that a rank will take; null if it sees none.
  const GpuFacts* gpu_of(size_t rank) const;
};

std::vector<int> ranks_where(const JobFacts& s, const std::function<bool(size_t rank)>& holds);

inline const std::string& host_of(const JobFacts& s, int rank) {
  return s.locations[static_cast<size_t>(rank)].host;
}
inline const RankFacts& facts_of(const JobFacts& s, int rank) { return s.ranks[static_cast<size_t>(rank)]; }
int num_nodes(const JobFacts& s);
// Ranks of each node, by its index.
std::vector<std::vector<int>> ranks_by_node(const JobFacts& s);
// Hosts of ranks, each once: "nid1, nid2 and 14 more".
std::string hosts_text(const JobFacts& s, const std::vector<int>& ranks);

// Ascending numbers: "0-3,8". None: "-".
std::string ranges_text(std::span<const int> numbers);
// "rank 3", "ranks 0-3,8".
std::string ranks_text(std::span<const int> ranks);

}  // namespace maniple
