// The deadlines of supervision.
#pragma once

#include <chrono>

namespace maniple {

struct Deadlines {
  std::chrono::milliseconds heartbeat{2000};      // between two heartbeats of a rank
  std::chrono::milliseconds silence{20'000};      // no heartbeat of a rank
  std::chrono::milliseconds progress{45'000};     // a step without a new layer; a wait for the disk
  std::chrono::milliseconds start_up{1'800'000};  // start and load; the end, with the final files
  std::chrono::milliseconds report{5'000};        // from noticing a fault to the end of this process

  // Deadlines with which all ranks are gone within `all_gone` after a fault.
  static Deadlines within(std::chrono::milliseconds all_gone);
};

}  // namespace maniple
