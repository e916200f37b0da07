#include <launch/supervision/deadlines.hpp>

#include <algorithm>

namespace maniple {

Deadlines Deadlines::within(std::chrono::milliseconds all_gone) {
  Deadlines deadlines;
  deadlines.silence = all_gone / 3;
  deadlines.heartbeat = std::min(deadlines.heartbeat, deadlines.silence / 10);
  deadlines.progress = all_gone * 3 / 4;
  deadlines.report = std::min(deadlines.report, all_gone / 6);
  return deadlines;
}

}  // namespace maniple
