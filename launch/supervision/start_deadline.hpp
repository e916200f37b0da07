// The deadline of a start. Until the health monitors run no thread watches the ranks, and the
// others would wait for ever for a missing rank, in MPI_Init or in the first collective phases.
#pragma once

#include <launch/process/launcher.hpp>
#include <launch/supervision/roll_call.hpp>
#include <launch/supervision/watchdog.hpp>
#include <parallel/world.hpp>

#include <chrono>

namespace maniple {

// Unless destroyed in time: after a fifth of `limit`, one minute at most, it says which ranks of this node
// are missing. After `limit` it ends this process by `on_fault` with ExitCode::fault. Rank 0 does so first;
// the others wait a little longer, so that the message appears once. On each other node one rank reports.
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
