#include <runtime/control/pulse.hpp>

#include <algorithm>

namespace maniple {

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::start:
      return "start-up";
    case Phase::load:
      return "loading weights";
    case Phase::idle:
      return "waiting for work";
    case Phase::step:
      return "a step";
    case Phase::end:
    case Phase::gone:
      return "the end";
  }
  return "?";
}

std::vector<uint64_t> Whereabouts::requests() const {
  const size_t shown = phase == Phase::step ? std::min<size_t>(running, most_requests) : 0;
  return {first.begin(), first.begin() + static_cast<std::ptrdiff_t>(shown)};
}

Whereabouts Pulse::where() const {
  Whereabouts where{step, layer, phase, running, {}};
  for (size_t index = 0; index < where.first.size(); ++index) where.first[index] = first[index];
  return where;
}

}  // namespace maniple
