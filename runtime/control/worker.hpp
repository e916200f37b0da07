// A rank's side of a step, on rank 0 too: receive a plan, launch it, collect its result, send the result to
// rank 0 if this rank sends_results for its replica.
#pragma once

#include <parallel/mailbox.hpp>
#include <runtime/control/rank_activity.hpp>
#include <runtime/scheduling/step_runner.hpp>

namespace maniple {

struct WorkerTimes {
  double prefill = 0;  // a mixed step counts by its share of prompt tokens
  double decode = 0;
  double idle = 0;
};

// Runs plans until rank 0 sends the stop command. Launches a plan that has arrived before it collects the
// result of the previous one; rank 0 limits the number in flight.
WorkerTimes run_worker_loop(Mailbox& mailbox, bool sends_results, StepRunner& runner, RankActivity& activity);

}  // namespace maniple
