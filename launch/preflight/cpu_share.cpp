#include <launch/preflight/cpu_share.hpp>

#include <algorithm>

namespace maniple {

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

}  // namespace maniple
