#include <kernels/support/counted.hpp>
#include <kernels/support/number_text.hpp>
#include <launch/options/option_names.hpp>
#include <launch/preflight/check_list.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace maniple {
namespace {

using Result = std::optional<Finding>;

using enum Severity;

Result check_tensor_groups(const JobFacts& s) {
  const int tensor = s.plan.grid.tensor;
  if (s.options.allow_cross_node_tp || !s.plan.tensor_groups_span_nodes) return std::nullopt;
  std::vector<std::string> nodes;
  for (const std::vector<int>& ranks : ranks_by_node(s))
    if (nodes.size() < 4) nodes.push_back(fmt::format("{} on {}", ranges_text(ranks), host_of(s, ranks[0])));
  const bool blocks_fit = std::ranges::all_of(
      s.locations, [&](const RankLocation& location) { return location.local_size % tensor == 0; });
  const int share = static_cast<int>(s.size()) / num_nodes(s);  // of a node, if they are even
  const bool even_shares_fit = share * num_nodes(s) == static_cast<int>(s.size()) && share % tensor == 0;
  int inside = tensor - 1;
  while (tensor % inside != 0 || tensor_groups_span_nodes(s.locations, inside)) --inside;
  return Finding{
      refusal,
      fmt::format("--tp {} spans nodes: the ranks are {}{}", tensor, fmt::join(nodes, ", "),
                  num_nodes(s) > 4 ? ", ..." : ""),
      "every layer would wait for the network between the nodes twice",
      fmt::format("{}, or --allow-cross-node-tp to accept",
                  blocks_fit ? "srun --distribution=block (mpirun --map-by slot)"
                  : even_shares_fit
                      ? fmt::format("srun --ntasks-per-node={0} (mpirun --map-by ppr:{0}:node)", share)
                      : fmt::format("--tp {} (more replicas)", inside))};
}

// A library that only some ranks have loaded counts as a difference. Libraries that talk to other
// ranks must be the same everywhere; drivers and math libraries may differ slightly between nodes.
Result check_versions(const JobFacts& s) {
  constexpr std::array strict = {"maniple", "MPI", "libmpi", "libnccl"};
  std::set<std::string> names;
  for (const RankFacts& facts : s.ranks)
    for (const auto& [name, version] : facts.versions) names.insert(name);
  std::string table;
  bool refused = false;
  for (const std::string& name : names) {
    std::map<std::string, std::vector<int>> ranks_of;
    for (size_t rank = 0; rank < s.size(); ++rank) {
      const auto found = s.ranks[rank].versions.find(name);
      ranks_of[found == s.ranks[rank].versions.end() ? "none" : found->second].push_back(
          static_cast<int>(rank));
    }
    if (ranks_of.size() == 1) continue;
    refused |= std::ranges::find(strict, name) != strict.end();
    for (const auto& [version, ranks] : ranks_of)
      table += fmt::format("\n    {} {}: {} ({})", name, version, ranks_text(ranks), hosts_text(s, ranks));
  }
  if (table.empty()) return std::nullopt;
  return Finding{
      refused ? refusal : warning,
      "not all ranks run the same program and libraries (name, version, hash of the file):" + table,
      "ranks of different builds may hang or compute different things",
      "load the same modules on every node, or copy one build to all (sbcast)"};
}

Result check_cpu_masks(const JobFacts& s) {
  if (s.options.engine.threads) return std::nullopt;
  const std::vector<int> bound = ranks_where(s, [&](size_t rank) {
    return s.ranks[rank].cpus.size() == 1 && s.ranks[rank].cpus_of_node >= 2 * s.locations[rank].local_size;
  });
  if (bound.empty()) return std::nullopt;
  return Finding{
      warning,
      fmt::format("{} of {} may use only 1 CPU each, rank {} 1 of the {} of {}", bound.size(),
                  counted(s.size(), "rank"), bound[0], facts_of(s, bound[0]).cpus_of_node,
                  host_of(s, bound[0])),
      "mpirun binds each rank to a single core by default where it starts one or two",
      "mpirun --bind-to none, or --map-by slot:PE=N for N cores a rank; with srun: --cpus-per-task=N"};
}

Result check_locked_memory(const JobFacts& s) {
  constexpr uint64_t enough = uint64_t{1} << 30;
  const std::vector<int> low = ranks_where(s, [&](size_t rank) {
    return !s.ranks[rank].fabric.empty() && s.ranks[rank].locked_memory.soft < enough;
  });
  if (low.empty()) return std::nullopt;
  const ResourceLimit& limit = facts_of(s, low[0]).locked_memory;
  return Finding{warning,
                 fmt::format("only {} of memory may be locked on {}, and {} is active there",
                             bytes_text(limit.soft), hosts_text(s, low), facts_of(s, low[0]).fabric[0]),
                 "InfiniBand needs locked memory; without it MPI and NCCL fail or take slow paths",
                 limit.hard >= enough
                     ? "ulimit -l unlimited in the job script, before srun"
                     : fmt::format("a job script cannot change it (the hard limit is {}): ask "
                                   "the site for unlimited memlock in slurmd's limits",
                                   bytes_text(limit.hard))};
}

// MPI has connected all ranks by now. NCCL chooses an interface itself.
Result check_networks(const JobFacts& s) {
  std::map<std::string, std::set<int>> nodes_in;
  for (size_t rank = 0; rank < s.size(); ++rank)
    for (const Subnet& subnet : s.ranks[rank].subnets)
      nodes_in[subnet.network].insert(s.locations[rank].node);
  const auto nodes = static_cast<size_t>(num_nodes(s));
  if (std::ranges::any_of(nodes_in, [&](const auto& entry) { return entry.second.size() == nodes; }))
    return std::nullopt;
  std::string table;
  for (size_t rank = 0; rank < s.size(); ++rank) {
    if (s.locations[rank].local_rank != 0 || s.locations[rank].node >= 4) continue;
    table += fmt::format("\n    {}:", s.locations[rank].host);
    for (const Subnet& subnet : s.ranks[rank].subnets)
      table += fmt::format(" {} {}", subnet.interface, subnet.network);
  }
  return Finding{
      s.on_gpus() ? warning : note,
      "no IPv4 network is common to all nodes; by node, interface and network:" + table,
      "NCCL, or MPI over TCP, may choose interfaces that do not reach each other",
      "export NCCL_SOCKET_IFNAME=NAME OMPI_MCA_btl_tcp_if_include=NAME, an interface that is routed"};
}

Result check_run_directory(const JobFacts& s) {
  constexpr std::array volatile_systems = {"tmpfs", "ramfs", "overlay"};
  const StorageFacts& storage = s.ranks[0].run_dir;
  const std::string& path = s.options.run_dir->native();
  if (!storage.writable)
    return Finding{
        refusal,
        fmt::format("rank 0 on {} may not write to {}, where {} would be", host_of(s, 0), storage.path, path),
        "no result could be kept", "give --run-dir a place where you may write"};
  const bool in_memory = std::ranges::find(volatile_systems, storage.file_system) != volatile_systems.end();
  const std::vector<int> blind =
      ranks_where(s, [&](size_t rank) { return s.ranks[rank].run_dir.path != storage.path; });
  if (num_nodes(s) == 1 || (blind.empty() && !in_memory)) return std::nullopt;
  return Finding{warning,
                 blind.empty() ? fmt::format("{} is on {} of {}", path, storage.file_system, host_of(s, 0))
                               : fmt::format("{} is on {} of {}, but not on {}", path, storage.file_system,
                                             host_of(s, 0), hosts_text(s, blind)),
                 "a later job whose rank 0 is on another node would not find these results",
                 "give --run-dir a place on the shared file system"};
}

Result check_space(const JobFacts& s) {
  const StorageFacts& storage = s.ranks[0].run_dir;
  if (storage.free_bytes >= s.results_bytes) return std::nullopt;
  return Finding{
      refusal,
      fmt::format("{} has {} of free space, but the results may take {}", s.options.run_dir->native(),
                  bytes_text(storage.free_bytes), bytes_text(s.results_bytes)),
      "the journal of what is missing and the results of all requests are there side by side at the end",
      "make room, a smaller --max-tokens, or --shard I/N with a run directory elsewhere"};
}

Result check_time_left(const JobFacts& s) {
  constexpr double assumed_speed = 1e9;  // bytes a second, of all ranks of replica 0 together
  uint64_t weights = 0;
  for (int rank = 0; rank < s.plan.grid.replica_ranks(); ++rank) weights += facts_of(s, rank).weight_bytes;
  const double needed = static_cast<double>(weights) / assumed_speed;
  if (*s.seconds_left > needed) return std::nullopt;
  return Finding{warning,
                 fmt::format("{:.0f} s are left until the job stops itself, loading {} takes about {:.0f} s",
                             std::max(*s.seconds_left, 0.0), bytes_text(weights), needed),
                 "it would stop before it has done anything", "a longer --time, or a smaller --stop-before"};
}

// Counts only differences beyond the uncertainty of the readings.
Result check_clocks(const JobFacts& s) {
  constexpr double most = 1.0;
  const ClockReading& mine = s.ranks[0].clock;
  double worst = 0;
  int ahead = 0;
  for (size_t rank = 1; rank < s.size(); ++rank) {
    const ClockReading& its = s.ranks[rank].clock;
    const double skew = its.middle - mine.middle;
    if (std::abs(skew) - its.slack - mine.slack > std::max(most, std::abs(worst))) {
      worst = skew;
      ahead = static_cast<int>(rank);
    }
  }
  if (worst == 0) return std::nullopt;
  return Finding{warning,
                 fmt::format("the clock of {} is {:.1f} s {} that of {}", host_of(s, ahead), std::abs(worst),
                             worst > 0 ? "ahead of" : "behind", host_of(s, 0)),
                 "times in logs and files do not fit together",
                 fmt::format("tell the site that NTP does not work there; --exclude={}", host_of(s, ahead))};
}

Result check_open_files(const JobFacts& s) {
  constexpr uint64_t few_files = 4096;
  const std::vector<int> few =
      ranks_where(s, [&](size_t rank) { return s.ranks[rank].open_files.soft < few_files; });
  if (few.empty()) return std::nullopt;
  return Finding{
      note,
      fmt::format("only {} files may be open on {}", facts_of(s, few[0]).open_files.soft, hosts_text(s, few)),
      "MPI over TCP opens one for each pair of ranks", "ulimit -n 65536 in the job script"};
}

Result check_core_files(const JobFacts& s) {
  const std::vector<int> dumping =
      ranks_where(s, [&](size_t rank) { return s.ranks[rank].core_size.soft > 0; });
  if (dumping.empty()) return std::nullopt;
  return Finding{
      note,
      fmt::format("core files are allowed (limit: {})", bytes_text(facts_of(s, dumping[0]).core_size.soft)),
      "a crash may write the memory of every rank to the shared file system",
      "ulimit -c 0 in the job script"};
}

Result check_huge_pages(const JobFacts& s) {
  const std::vector<int> without = ranks_where(s, [&](size_t rank) { return !s.ranks[rank].huge_pages; });
  if (without.empty()) return std::nullopt;
  return Finding{note, fmt::format("transparent huge pages are off on {}", hosts_text(s, without)),
                 "reading weights from memory is slower with small pages",
                 "ask the site for \"madvise\" in /sys/kernel/mm/transparent_hugepage/enabled"};
}

// Whether a check applies.
bool always(const JobFacts&) { return true; }
bool asks_for_gpus(const JobFacts& s) { return s.plan.backend.kind == BackendKind::cuda; }
bool in_an_allocation(const JobFacts& s) { return s.options.launch.allocated_tasks > 1; }
bool with_threads(const JobFacts& s) { return s.options.engine.threads.has_value(); }
bool on_cpus(const JobFacts& s) { return !s.on_gpus(); }
bool on_cpu_backend(const JobFacts& s) { return s.plan.backend.kind == BackendKind::cpu; }
bool on_cpus_beside_gpus(const JobFacts& s) {
  return on_cpus(s) && s.options.engine.backend.kind == BackendKind::automatic &&
         std::ranges::any_of(
             s.ranks, [](int gpus) { return gpus > 0; }, &RankFacts::gpus_of_node);
}
bool in_fp16_on_cpus(const JobFacts& s) { return on_cpu_backend(s) && s.plan.dtype == DType::fp16; }
// Checks of where GPUs are need a visible GPU on every rank.
bool with_gpus(const JobFacts& s) {
  return s.on_gpus() && std::ranges::none_of(s.ranks, std::ranges::empty, &RankFacts::gpus);
}
bool with_several_gpus_a_node(const JobFacts& s) {
  return with_gpus(s) && std::ranges::any_of(
                             s.locations, [](int ranks) { return ranks > 1; }, &RankLocation::local_size);
}
bool with_known_numa_nodes(const JobFacts& s) {
  return with_gpus(s) && std::ranges::any_of(s.ranks, [](const RankFacts& facts) {
           return std::ranges::any_of(facts.gpus, [](const GpuFacts& gpu) { return gpu.numa_node >= 0; });
         });
}
bool in_tensor_groups_on_gpus(const JobFacts& s) {
  return with_several_gpus_a_node(s) && s.plan.grid.tensor > 1;
}
bool on_several_nodes(const JobFacts& s) { return num_nodes(s) > 1; }
bool with_ranks_beside_each_other(const JobFacts& s) { return num_nodes(s) < static_cast<int>(s.size()); }
bool on_fabric(const JobFacts& s) {
  return std::ranges::any_of(s.ranks, [](const RankFacts& facts) { return !facts.fabric.empty(); });
}
bool with_model(const JobFacts& s) { return !s.options.engine.model.empty(); }
bool with_model_on_cpus(const JobFacts& s) { return on_cpus(s) && with_model(s); }
bool with_gpus_on_fabric(const JobFacts& s) { return with_gpus(s) && on_several_nodes(s) && on_fabric(s); }
bool with_run_dir(const JobFacts& s) { return s.options.run_dir.has_value(); }
bool with_results(const JobFacts& s) { return s.results_bytes > 0; }
bool with_an_end(const JobFacts& s) { return s.seconds_left.has_value(); }

struct Check {
  std::string_view name;
  bool (*applies)(const JobFacts&);
  Result (*run)(const JobFacts&);
};
constexpr std::array checks{
    Check{"one Slurm component", always, check_heterogeneous_job},
    Check{"all tasks of the allocation", in_an_allocation, check_idle_tasks},
    Check{"tensor groups inside nodes", on_several_nodes, check_tensor_groups},
    Check{"same versions everywhere", always, check_versions},
    Check{"one type of processors", on_cpu_backend, check_processors},
    Check{"a GPU for each rank", asks_for_gpus, check_gpus},
    Check{"no idle GPUs", on_cpus_beside_gpus, check_idle_gpus},
    Check{"a type that CPUs compute in", in_fp16_on_cpus, check_fp16},
    Check{"GPUs of a node see each other", with_several_gpus_a_node, check_gpu_isolation},
    Check{"GPUs of a tensor group reach each other", in_tensor_groups_on_gpus, check_gpu_peers},
    Check{"CPUs near the GPU", with_known_numa_nodes, check_gpu_numa},
    Check{"Open MPI inside a node", with_ranks_beside_each_other, check_reads},
    Check{"CPUs of each rank", always, check_cpu_masks},
    Check{"CPUs for all threads", with_threads, check_threads},
    Check{"room in the KV cache", with_model, check_cache},
    Check{"memory for weights and KV cache", with_model_on_cpus, check_memory},
    Check{"shared memory for sums", adds_in_shared_memory, check_shared_memory},
    Check{"locked memory", on_fabric, check_locked_memory},
    Check{"NCCL on the fast network", with_gpus_on_fabric, check_nccl_transport},
    Check{"a network common to all nodes", on_several_nodes, check_networks},
    Check{"run directory on shared storage", with_run_dir, check_run_directory},
    Check{"space for results", with_results, check_space},
    Check{"time to load", with_an_end, check_time_left},
    Check{"clocks", on_several_nodes, check_clocks},
    Check{"open files", always, check_open_files},
    Check{"core files", always, check_core_files},
    Check{"huge pages", on_cpus, check_huge_pages},
};

}  // namespace

std::vector<CheckResult> run_checks(const JobFacts& job) {
  std::vector<CheckResult> results;
  for (const Check& check : checks)
    if (check.applies(job)) results.push_back({check.name, check.run(job)});
  return results;
}

std::string finding_block(const Finding& finding) {
  constexpr std::array words = {"note", "warning", "refused"};
  return with_option_names(fmt::format("{}: {}\n  why: {}\n  try: {}\n",
                                       words[static_cast<size_t>(finding.severity)], finding.what,
                                       finding.why, finding.remedy));
}

bool has_refusal(const std::vector<CheckResult>& results) {
  return std::ranges::any_of(results, [](const CheckResult& result) {
    return result.finding && result.finding->severity == refusal;
  });
}

void throw_refusal(const std::vector<CheckResult>& results) {
  for (const auto& [name, finding] : results)
    if (finding && finding->severity == refusal)
      throw Error(ExitCode::preflight, finding->what, finding->why, finding->remedy);
}

}  // namespace maniple
