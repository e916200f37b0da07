// Until the ranks watch each other nobody does: a rank that never comes would let the others wait for ever,
// within MPI_Init or in what they agree on before the watch.
#pragma once

#include <parallel/world.hpp>
#include <runtime/control/watchdog.hpp>

#include <chrono>

namespace maniple {

// Ends this process by `on_fault` with ExitCode::fault unless destroyed in time. Rank 0 says why; the others
// wait a little longer, so that it is said first.
class StartDeadline {
 public:
  StartDeadline(int rank, FaultHandler on_fault, std::chrono::seconds limit = std::chrono::seconds(300));

 private:
  Watchdog end_;
};

}  // namespace maniple
