#include <kernels/factory/make_backend.hpp>
#include <runtime/checkpoint/quantization/scheme.hpp>
#include <runtime/collective_phase.hpp>
#include <runtime/device_choice.hpp>

#include <algorithm>
#include <map>

namespace maniple {

namespace {

CpuPath common_cpu_path(World& world) {
  uint32_t mine = 0;
  for (const CpuPath path : available_cpu_paths()) mine |= 1u << static_cast<int>(path);
  uint32_t common = mine;
  for (const uint32_t theirs : gather_values(world, mine)) common &= theirs;
  for (const CpuPath path : available_cpu_paths())
    if (common & (1u << static_cast<int>(path))) return path;
  return CpuPath::portable;
}

bool all_see_gpus(World& world) {
  return std::ranges::all_of(gather_values(world, visible_gpus()), [](int count) { return count > 0; });
}

}  // namespace

BackendChoice common_backend(World& world, BackendChoice asked) {
  if (asked.kind == BackendKind::automatic)
    asked.kind = all_see_gpus(world) ? BackendKind::cuda : BackendKind::cpu;
  if (asked.cpu_path == CpuPath::automatic) asked.cpu_path = common_cpu_path(world);
  return asked;
}

int choose_gpu(int visible, const RankLocation& location, bool may_share) {
  if (visible == 0) return location.local_rank;
  if (visible == 1 || visible >= location.local_size || may_share) return location.local_rank % visible;
  throw Error(ExitCode::preflight,
              fmt::format("{} ranks of this node see {} GPUs each", location.local_size, visible),
              "every rank works on a GPU of its own",
              fmt::format("start {} ranks a node (`ranks_a_node`={}), or ask for {} GPUs (`gpus_a_node`={})",
                          visible, visible, location.local_size, location.local_size));
}

void refuse_shared_gpus(const std::vector<std::string>& uuids, const std::vector<RankLocation>& locations) {
  std::map<std::string, size_t> owners;
  for (size_t rank = 0; rank < uuids.size(); ++rank) {
    if (uuids[rank].empty()) continue;
    const auto [first, is_new] = owners.emplace(uuids[rank], rank);
    if (!is_new)
      throw Error(ExitCode::preflight,
                  fmt::format("ranks {} and {} on {} have the same GPU, {}", first->second, rank,
                              locations[rank].host, uuids[rank]),
                  "they would halve each other's speed and memory",
                  "ask for as many GPUs a node as ranks (`gpus_a_node`=N `ranks_a_node`=N), seen by all of "
                  "its ranks");
  }
}

void refuse_cache(const KvLayout& layout, DType activations, const QuantScheme& scheme) {
  if (layout.keeps(activations)) return;
  throw Error(scheme.keeps_fp8_kv() ? ExitCode::input : ExitCode::usage,
              fmt::format("no attention reads keys and values in {} (`kv_cache_dtype`), for {} of {} and "
                          "activations in {}",
                          name_of(layout.dtype), layout.shared ? "latent rows" : "heads", layout.key_dim,
                          name_of(activations)),
              "attention reads them as they are stored, at every step",
              fmt::format("`kv_cache_dtype` {}", name_of(activations)));
}

size_t cache_memory(const MemoryState& memory, double utilization) {
  const auto left = [](size_t from, size_t taken) { return from - std::min(from, taken); };
  const size_t reserved = memory.reserved * memory.sharers;
  if (memory.total == 0)
    return std::min(left(memory.free, reserved) / memory.sharers, left(memory.addresses, memory.reserved)) /
           5 * 3;
  const auto usable = static_cast<size_t>(static_cast<double>(memory.total) * utilization);
  return left(usable, memory.total - memory.free + reserved) / memory.sharers;
}

}  // namespace maniple
