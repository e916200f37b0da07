#include <runtime/control/rank_activity.hpp>

#include <algorithm>

namespace maniple {

const char* name_of(Phase phase) {
  constexpr std::array names{"start", "load", "idle", "step", "end", "finalize", "gone"};
  return names[static_cast<size_t>(phase)];
}

std::vector<uint64_t> Heartbeat::requests() const {
  const size_t shown = phase == Phase::step ? std::min<size_t>(running, max_requests) : 0;
  return {first.begin(), first.begin() + static_cast<std::ptrdiff_t>(shown)};
}

Heartbeat RankActivity::heartbeat() const {
  Heartbeat now{step, layer, phase, waits, running, {}};
  for (size_t index = 0; index < now.first.size(); ++index) now.first[index] = first[index];
  return now;
}

}  // namespace maniple
