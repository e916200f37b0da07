#include <kernels/support/counted.hpp>
#include <launch/preflight/check_list.hpp>
#include <runtime/device_choice.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace maniple {

using enum Severity;

std::optional<Finding> check_gpus(const JobFacts& s) {
  if (!s.cuda_build)
    return Finding{refusal, "this build has no CUDA backend",
                   "the build found no CUDA toolkit, or left it out",
                   "--backend cpu, or build with -DMANIPLE_CUDA=ON where nvcc and cuBLAS are"};
  const std::vector<int> without = ranks_where(s, [&](size_t rank) { return s.ranks[rank].gpus.empty(); });
  if (!without.empty() && s.options.launch.job.empty())
    return Finding{
        refusal, fmt::format("no GPU is visible on {}, which is in no job", hosts_text(s, without)),
        "the cuda backend needs a GPU for each rank", "--backend cpu, or a job on GPU nodes (sbatch)"};
  if (!without.empty())
    return Finding{refusal,
                   fmt::format("no GPU is visible to {} ({})", ranks_text(without), hosts_text(s, without)),
                   "the cuda backend needs a GPU for each rank",
                   "--gpus-per-node=N --ntasks-per-node=N, or --backend cpu"};
  size_t rank = 0;
  try {
    std::vector<std::string> chosen;
    for (; rank < s.size(); ++rank) {
      const RankLocation& location = s.locations[rank];
      choose_gpu(static_cast<int>(s.ranks[rank].gpus.size()), location, s.options.engine.share_gpus);
      chosen.push_back(fmt::format("{} (bus {})", s.gpu_of(rank)->uuid, s.gpu_of(rank)->bus));
    }
    if (!s.options.engine.share_gpus) refuse_shared_gpus(chosen, s.locations);
  } catch (const Error& error) {
    const std::string where = rank < s.size() ? s.locations[rank].host + ": " : "";
    return Finding{refusal, where + error.what(), error.why(), error.remedy()};
  }
  return std::nullopt;
}

// With --backend auto users may not notice that GPUs stay idle.
std::optional<Finding> check_idle_gpus(const JobFacts& s) {
  const std::vector<int> near = ranks_where(s, [&](size_t rank) { return s.ranks[rank].gpus_of_node > 0; });
  const std::string what =
      fmt::format("all ranks run on CPUs, though {} has {}", host_of(s, near[0]),
                  counted(static_cast<uint64_t>(facts_of(s, near[0]).gpus_of_node), "GPU"));
  if (!s.cuda_build)
    return Finding{warning, what, "this build has no CUDA backend",
                   "build with -DMANIPLE_CUDA=ON, or --backend cpu if it is meant"};
  const std::vector<int> blind = ranks_where(s, [&](size_t rank) { return s.ranks[rank].gpus.empty(); });
  return Finding{warning, what,
                 fmt::format("{} ({}) {} none: the job has none, or the driver is too old", ranks_text(blind),
                             hosts_text(s, blind), blind.size() == 1 ? "sees" : "see"),
                 "--gpus-per-node=N (nvidia-smi tells the driver), or --backend cpu if it is meant"};
}

std::optional<Finding> check_fp16(const JobFacts&) {
  return Finding{refusal, "--dtype fp16 is for GPUs, and this job runs on CPUs",
                 "the CPU backend computes in bf16 and fp32", "--dtype bf16"};
}

std::optional<Finding> check_gpu_isolation(const JobFacts& s) {
  if (s.options.engine.share_gpus) return std::nullopt;
  const std::vector<int> alone = ranks_where(
      s, [&](size_t rank) { return s.ranks[rank].gpus.size() == 1 && s.locations[rank].local_size > 1; });
  if (alone.empty()) return std::nullopt;
  return Finding{
      warning, fmt::format("{} {} their own GPU only", ranks_text(alone), alone.size() == 1 ? "sees" : "see"),
      "copies between the GPUs of a node may go through host memory",
      "--gpus-per-node=N --ntasks-per-node=N without --gpus-per-task and --gpu-bind"};
}

// Only for GPUs that see each other; check_gpu_isolation reports hidden ones.
std::optional<Finding> check_gpu_peers(const JobFacts& s) {
  if (s.options.engine.share_gpus) return std::nullopt;
  const auto reaches = [&](int rank, int other) {
    const GpuFacts& mine = *s.gpu_of(static_cast<size_t>(rank));
    const std::string& theirs = s.gpu_of(static_cast<size_t>(other))->uuid;
    const bool visible =
        std::ranges::count(facts_of(s, rank).gpus, theirs, [](const GpuFacts& gpu) { return gpu.uuid; });
    return !visible || mine.uuid == theirs || std::ranges::count(mine.peers, theirs) > 0;
  };
  const std::vector<int> cut_off = ranks_where(s, [&](size_t rank) {
    const auto me = static_cast<int>(rank);
    return !std::ranges::all_of(s.plan.rank(me).groups.tensor, [&](int other) { return reaches(me, other); });
  });
  if (cut_off.empty()) return std::nullopt;
  return Finding{
      warning,
      fmt::format("the GPUs of {} ({}) have no peer access to others of their tensor group",
                  ranks_text(cut_off), hosts_text(s, cut_off)),
      "what every layer sums up goes through host memory, many times slower",
      "nvidia-smi topo -p2p r shows which GPUs reach each other: a --tp within those; in a virtual "
      "machine or with PCIe ACS ask the site"};
}

std::optional<Finding> check_gpu_numa(const JobFacts& s) {
  const std::vector<int> far = ranks_where(s, [&](size_t rank) {
    const GpuFacts* gpu = s.gpu_of(rank);
    const std::vector<int>& nodes = s.ranks[rank].numa_nodes;
    return gpu && gpu->numa_node >= 0 && std::ranges::find(nodes, gpu->numa_node) == nodes.end();
  });
  if (far.empty()) return std::nullopt;
  return Finding{
      warning,
      fmt::format("{} ({}) {} on processors of another NUMA node than that of their GPU", ranks_text(far),
                  hosts_text(s, far), far.size() == 1 ? "runs" : "run"),
      "every copy and every launch crosses the link between the sockets",
      "srun --gpu-bind=none --cpu-bind=verbose shows the masks; --cpus-per-task and --distribution "
      "move them, mpirun --map-by numa"};
}

std::optional<Finding> check_nccl_transport(const JobFacts& s) {
  const std::string& setting = s.options.launch.nccl_off_fabric;
  const std::vector<int> with = ranks_where(s, [&](size_t rank) { return !s.ranks[rank].fabric.empty(); });
  if (setting.empty() || with.empty() || num_nodes(s) == 1) return std::nullopt;
  return Finding{warning,
                 fmt::format("{} keeps NCCL on sockets, while {} on {} are active", setting,
                             fmt::join(facts_of(s, with[0]).fabric, ", "), hosts_text(s, with)),
                 "traffic between nodes is then many times slower",
                 "unset it; in a container bind the verbs devices; on Slingshot load the OFI plugin"};
}

}  // namespace maniple
