// Until the ranks watch each other nobody does: a rank that never comes would let the others wait for ever,
// within MPI_Init or in what they agree on before the watch.
#pragma once

#include <launch/launcher.hpp>
#include <launch/roll_call.hpp>
#include <parallel/world.hpp>
#include <runtime/control/watchdog.hpp>

#include <chrono>

namespace maniple {

// Unless destroyed in time, says after a fifth of `limit`, a minute at most, which ranks of this node are
// missing, and ends this process by `on_fault` with ExitCode::fault. Rank 0 does so first; the others wait a
// little longer, so that it is said once. On other nodes one rank speaks.
class StartDeadline {
 public:
  StartDeadline(const Launch& launch, FaultHandler on_fault, std::chrono::milliseconds limit);
  void joined() { ranks_.joined(); }  // MPI_Init is over

 private:
  RollCall ranks_;
  Watchdog notice_;
  Watchdog end_;
};

}  // namespace maniple
