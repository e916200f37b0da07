// The side of a step that every rank has, rank 0 too: receive a plan, launch it, collect its result, answer
// if this rank reports for its replica.
#pragma once

#include <parallel/mailbox.hpp>
#include <runtime/control/rank_activity.hpp>
#include <runtime/scheduling/step_plan.hpp>

#include <functional>

namespace maniple {

struct WorkerTimes {
  double prefill = 0;  // of a mixed step: by its share of prompt tokens
  double decode = 0;
  double idle = 0;
};

// What runs the plans, given by the engine (control does not know execution). Results come in the order of the
// plans.
struct StepRunner {
  std::function<void(const StepPlan&)> launch;
  std::function<bool()> ready;  // collect() would not wait
  std::function<StepResult()> collect;
};

// Runs plans until rank 0 says stop. A plan that has arrived is launched before the result of the one before it
// is collected; rank 0 bounds how many are in flight.
WorkerTimes run_worker_loop(Mailbox& mailbox, bool reports, const StepRunner& runner, RankActivity& activity);

}  // namespace maniple
