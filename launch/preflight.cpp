#include <kernels/support/check.hpp>
#include <launch/preflight.hpp>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace maniple {

namespace {

// The kernel refuses a set smaller than its own; machines beyond the default's 1024 CPUs exist.
std::vector<int> own_mask() {
  constexpr size_t most_cpus = 1 << 16;
  std::vector<cpu_set_t> set(most_cpus / CPU_SETSIZE);
  const size_t bytes = set.size() * sizeof(cpu_set_t);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, bytes, set.data()) != 0) return {0};
  for (size_t cpu = 0; cpu < most_cpus; ++cpu)
    if (CPU_ISSET_S(cpu, bytes, set.data())) cpus.push_back(static_cast<int>(cpu));
  return cpus;
}

std::vector<std::vector<int>> gather_lists(World& world, const std::vector<int>& mine) {
  std::vector<std::vector<int>> lists;
  for (const std::vector<std::byte>& bytes : world.all_gather_bytes(std::as_bytes(std::span(mine)))) {
    std::vector<int>& list = lists.emplace_back(bytes.size() / sizeof(int));
    std::memcpy(list.data(), bytes.data(), list.size() * sizeof(int));
  }
  return lists;
}

}  // namespace

CpuShare share_cpus(std::span<const std::vector<int>> masks, const std::vector<Place>& places, int rank,
                    std::optional<int> threads) {
  const auto me = static_cast<size_t>(rank);
  const std::vector<int>& mask = masks[me];
  size_t sharers = 0, mine = 0;
  for (size_t other = 0; other < masks.size(); ++other) {
    if (places[other].node != places[me].node || masks[other] != mask) continue;
    if (other == me) mine = sharers;
    ++sharers;
  }
  const size_t each = mask.size() / sharers;
  CpuShare share;
  share.threads = threads.value_or(static_cast<int>(std::max<size_t>(each, 1)));
  if (const auto wanted = static_cast<size_t>(share.threads); wanted <= each) {
    const auto first = mask.begin() + static_cast<std::ptrdiff_t>(mine * each);
    share.cpus.assign(first, first + share.threads);
  }
  return share;
}

std::optional<std::string> binding_warning(std::span<const std::vector<int>> masks,
                                           std::span<const int> cpus_of_node,
                                           const std::vector<Place>& places) {
  std::vector<int> bound;
  for (size_t rank = 0; rank < masks.size(); ++rank)
    if (masks[rank].size() == 1 && cpus_of_node[rank] >= 2 * places[rank].local_size)
      bound.push_back(static_cast<int>(rank));
  if (bound.empty()) return std::nullopt;
  const auto first = static_cast<size_t>(bound[0]);
  return fmt::format(
      "maniple: warning: {} of {} ranks may use only 1 CPU each, rank {} 1 of the {} of {}\n"
      "  why: mpirun binds each rank to a single core by default where it starts one or two\n"
      "  try: mpirun --bind-to none, or --map-by slot:PE=N for N cores a rank; with srun: "
      "--cpus-per-task=N\n",
      bound.size(), masks.size(), first, cpus_of_node[first], places[first].host);
}

Preflight run_preflight(World& world, std::optional<int> threads) {
  const std::vector<std::vector<int>> masks = gather_lists(world, own_mask());
  std::vector<int> cpus_of_node;
  for (const std::vector<int>& count :
       gather_lists(world, {static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))}))
    cpus_of_node.push_back(count.at(0));
  Preflight preflight;
  preflight.share = share_cpus(masks, world.places(), world.rank(), threads);
  if (!threads) preflight.warning = binding_warning(masks, cpus_of_node, world.places());
  return preflight;
}

}  // namespace maniple
