#include <launch/preflight/launch_checks.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace maniple {

using enum Severity;

std::optional<Finding> check_heterogeneous_job(const Situation& s) {
  const int components = s.options.launch.het_components;
  if (components <= 1) return std::nullopt;
  return Finding{refusal, fmt::format("this is a heterogeneous Slurm job of {} components", components),
                 "MPI over several components is not supported",
                 "one component: a job without \"#SBATCH hetjob\" and without \" : \""};
}

std::optional<Finding> check_idle_tasks(const Situation& s) {
  const Launch& launch = s.options.launch;
  if (s.size() > 1 || launch.allocated_tasks <= 1) return std::nullopt;
  return Finding{
      warning, fmt::format("one rank runs alone in a Slurm allocation of {} tasks", launch.allocated_tasks),
      "without srun or mpirun it is the only one, and the rest of the allocation stays idle",
      fmt::format("srun --mpi=pmix --ntasks={}{} maniple ..., or --ntasks=1 if one is meant",
                  launch.allocated_tasks,
                  launch.cpus_per_task > 0 ? fmt::format(" --cpus-per-task={}", launch.cpus_per_task) : "")};
}

// The path decides the last bits, so that a run keeps the one that it was begun with.
std::optional<Finding> check_processors(const Situation& s) {
  const std::string path(name_of(s.options.engine.backend.cpu_path));
  const std::string one_type = "nodes of one type: sbatch --constraint=NAME (sinfo -o \"%N %f\" lists them)";
  const std::vector<int> unable =
      ranks_where(s, [&](size_t rank) { return !std::ranges::count(s.ranks[rank].cpu_paths, path); });
  if (!unable.empty())
    return Finding{
        refusal,
        fmt::format("--cpu-path {}: the processors of ranks {} ({}) cannot run it; their best is {}", path,
                    ranges_text(unable), hosts_text(s, unable), facts_of(s, unable[0]).cpu_paths[0]),
        "all ranks of a run compute by the same path",
        fmt::format("--cpu-path {} for a new run, or {}", facts_of(s, unable[0]).cpu_paths[0], one_type)};
  std::map<std::string, std::vector<int>> ranks_of;
  for (size_t rank = 0; rank < s.size(); ++rank)
    ranks_of[s.ranks[rank].cpu_paths[0]].push_back(static_cast<int>(rank));
  if (!s.options.any_cpu_path || ranks_of.size() == 1) return std::nullopt;
  std::string types;
  for (const auto& [best, ranks] : ranks_of)
    types += fmt::format("{}{} on ranks {} ({})", types.empty() ? "" : ", ", best, ranges_text(ranks),
                         hosts_text(s, ranks));
  return Finding{warning, fmt::format("processors of different types: {}; all compute by {}", types, path),
                 "a later job of this run on better nodes would take another path, and be refused",
                 fmt::format("--cpu-path {} for all jobs of a run, or {}", path, one_type)};
}

}  // namespace maniple
