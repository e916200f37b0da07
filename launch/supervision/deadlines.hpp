// The deadlines of supervision.
#pragma once

#include <algorithm>
#include <chrono>

namespace maniple {

struct Deadlines {
  std::chrono::milliseconds heartbeat{2000};           // between two heartbeats of a rank
  std::chrono::milliseconds silence{20'000};           // no heartbeat of a rank
  std::chrono::milliseconds progress{45'000};          // a step without a new layer; a wait for the disk
  std::chrono::milliseconds outside_steps{1'800'000};  // start and load; the end, with the final files
  std::chrono::milliseconds report{5'000};             // from noticing a fault to the end of this process

  // Deadlines with which all ranks are gone within `all_gone` after a fault.
  static Deadlines within(std::chrono::milliseconds all_gone) {
    Deadlines deadlines;
    deadlines.silence = all_gone / 3;
    deadlines.heartbeat = std::min(deadlines.heartbeat, deadlines.silence / 10);
    deadlines.progress = all_gone * 3 / 4;
    deadlines.report = std::min(deadlines.report, all_gone / 6);
    return deadlines;
  }
};

}  // namespace maniple
