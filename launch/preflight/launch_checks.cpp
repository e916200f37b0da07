#include <kernels/support/counted.hpp>
#include <launch/preflight/check_list.hpp>
#include <launch/preflight/preflight.hpp>
#include <runtime/start/start.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace maniple {

using enum Severity;

std::optional<Finding> check_heterogeneous_job(const JobFacts& s) {
  const int components = s.options.launch.het_components;
  if (components <= 1) return std::nullopt;
  return Finding{refusal, fmt::format("this is a heterogeneous Slurm job of {} components", components),
                 "MPI over several components is not supported",
                 "one component: a job without \"#SBATCH hetjob\" and without \" : \""};
}

std::optional<Finding> check_idle_tasks(const JobFacts& s) {
  const Launch& launch = s.options.launch;
  if (s.size() > 1 || launch.allocated_tasks <= 1) return std::nullopt;
  return Finding{
      warning, fmt::format("one rank runs alone in a Slurm allocation of {} tasks", launch.allocated_tasks),
      "without srun or mpirun it is the only one, and the rest of the allocation stays idle",
      fmt::format("srun --mpi=pmix --ntasks={}{} maniple ..., or --ntasks=1 if one is meant",
                  launch.allocated_tasks,
                  launch.cpus_per_task > 0 ? fmt::format(" --cpus-per-task={}", launch.cpus_per_task) : "")};
}

// Ranks with the same mask share its CPUs.
std::optional<Finding> check_threads(const JobFacts& s) {
  const int threads = s.options.engine.threads.value_or(0);
  const std::vector<std::vector<int>> masks = masks_of(s);
  const auto cpus_of = [&](size_t rank) {
    return share_cpus(masks, s.locations, static_cast<int>(rank), std::nullopt).threads;
  };
  const std::vector<int> few = ranks_where(s, [&](size_t rank) { return cpus_of(rank) < threads; });
  if (few.empty()) return std::nullopt;
  const auto cpus = static_cast<uint64_t>(cpus_of(static_cast<size_t>(few[0])));
  return Finding{
      warning,
      fmt::format("--threads {}, but {} ({}) can have only {}{}", threads, ranks_text(few),
                  hosts_text(s, few), counted(cpus, "CPU"), few.size() == 1 ? "" : " each"),
      "threads that share a CPU wait for each other in every step",
      fmt::format("--threads {0}, or more CPUs: srun --cpus-per-task={1}, mpirun --map-by slot:PE={1}", cpus,
                  threads)};
}

std::optional<Finding> check_reads(const JobFacts& s) {
  const std::vector<int> unable = ranks_where(s, [&](size_t rank) {
    const auto mpi = s.ranks[rank].versions.find("libmpi");
    return !s.ranks[rank].reads_processes && mpi != s.ranks[rank].versions.end() &&
           mpi->second.starts_with("libmpi.so.40");
  });
  if (unable.empty()) return std::nullopt;
  return Finding{warning,
                 fmt::format("{} ({}) may not read the memory of other processes (process_vm_readv)",
                             ranks_text(unable), hosts_text(s, unable)),
                 "Open MPI tries it for every long message, and writes \"Read -1\" each time; a container's "
                 "default forbids it",
                 "export OMPI_MCA_btl_vader_single_copy_mechanism=none (Open MPI 5: OMPI_MCA_smsc=^cma)"};
}

// The path decides the last bits, so a run keeps the path that it was begun with.
std::optional<Finding> check_processors(const JobFacts& s) {
  const std::string path(name_of(s.plan.backend.cpu_path));
  const std::string one_type = "nodes of one type: sbatch --constraint=NAME (sinfo -o \"%N %f\" lists them)";
  const std::vector<int> unable =
      ranks_where(s, [&](size_t rank) { return !std::ranges::count(s.ranks[rank].cpu_paths, path); });
  if (!unable.empty())
    return Finding{
        refusal,
        fmt::format("--cpu-path {}: the processors of {} ({}) cannot run it; their best is {}", path,
                    ranks_text(unable), hosts_text(s, unable), facts_of(s, unable[0]).cpu_paths[0]),
        "all ranks of a run compute by the same path",
        fmt::format("--cpu-path {} for a new run, or {}", facts_of(s, unable[0]).cpu_paths[0], one_type)};
  std::map<std::string, std::vector<int>> ranks_of;
  for (size_t rank = 0; rank < s.size(); ++rank)
    ranks_of[s.ranks[rank].cpu_paths[0]].push_back(static_cast<int>(rank));
  if (s.options.engine.backend.cpu_path != CpuPath::automatic || ranks_of.size() == 1) return std::nullopt;
  std::string types;
  for (const auto& [best, ranks] : ranks_of)
    types += fmt::format("{}{} on {} ({})", types.empty() ? "" : ", ", best, ranks_text(ranks),
                         hosts_text(s, ranks));
  return Finding{warning, fmt::format("processors of different types: {}; all compute by {}", types, path),
                 "a later job of this run on better nodes would take another path, and be refused",
                 fmt::format("--cpu-path {} for all jobs of a run, or {}", path, one_type)};
}

}  // namespace maniple
