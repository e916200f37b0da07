#include <kernels/factory/make_backend.hpp>
#include <runtime/collective_phase.hpp>
#include <runtime/device_choice.hpp>
#include <runtime/start/start.hpp>

#include <sched.h>

#include <algorithm>

namespace maniple {
namespace {

std::vector<std::vector<int>> gather_masks(World& world) {
  const std::vector<int> mine = own_cpus();
  std::vector<std::vector<int>> masks;
  for (const std::string& bytes :
       world.all_gather_bytes({reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(int)})) {
    std::vector<int>& mask = masks.emplace_back(bytes.size() / sizeof(int));
    bytes.copy(reinterpret_cast<char*>(mask.data()), bytes.size());
  }
  return masks;
}

}  // namespace

// The kernel refuses a set smaller than its own; machines beyond the default's 1024 CPUs exist.
std::vector<int> own_cpus() {
  constexpr size_t max_cpus = 1 << 16;
  std::vector<cpu_set_t> set(max_cpus / CPU_SETSIZE);
  const size_t bytes = set.size() * sizeof(cpu_set_t);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, bytes, set.data()) != 0) return {0};
  for (size_t cpu = 0; cpu < max_cpus; ++cpu)
    if (CPU_ISSET_S(cpu, bytes, set.data())) cpus.push_back(static_cast<int>(cpu));
  return cpus;
}

RankPlace share_cpus(std::span<const std::vector<int>> masks, const std::vector<RankLocation>& locations,
                     int rank, std::optional<int> threads) {
  const auto me = static_cast<size_t>(rank);
  const std::vector<int>& mask = masks[me];
  size_t sharers = 0, mine = 0;
  for (size_t other = 0; other < masks.size(); ++other) {
    if (locations[other].node != locations[me].node || masks[other] != mask) continue;
    if (other == me) mine = sharers;
    ++sharers;
  }
  const size_t each = mask.size() / sharers;
  RankPlace place;
  place.threads = threads.value_or(static_cast<int>(std::max<size_t>(each, 1)));
  if (const auto wanted = static_cast<size_t>(place.threads); wanted <= each) {
    const auto first = mask.begin() + static_cast<std::ptrdiff_t>(mine * each);
    place.cpus.assign(first, first + place.threads);
  }
  return place;
}

RankPlace place(World& world, const EngineOptions& options, const JobPlan& plan) {
  RankPlace mine = share_cpus(gather_masks(world), world.locations(), world.rank(), options.threads);
  if (plan.backend.kind == BackendKind::cuda)
    collective_phase(world, [&] {
      const RankLocation& location = world.locations()[static_cast<size_t>(world.rank())];
      mine.gpu = choose_gpu(visible_gpus(), location, options.share_gpus);
    });
  return mine;
}

Backend make_backend(World& world, const JobPlan& plan, const RankPlace& place) {
  Backend backend;
  collective_phase(world, [&] {
    backend = make_backend({.kind = plan.backend.kind,
                            .cpu_path = plan.backend.cpu_path,
                            .threads = place.threads,
                            .cpus = place.cpus,
                            .gpu = place.gpu});
  });
  return backend;
}

}  // namespace maniple
