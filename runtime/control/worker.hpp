// The side of a step that every rank has, rank 0 too: receive a plan, launch it, collect its result, answer
// if this rank reports for its replica.
#pragma once

#include <parallel/mailbox.hpp>
#include <runtime/control/pulse.hpp>
#include <runtime/scheduling/step_plan.hpp>

#include <functional>

namespace maniple {

struct WorkerTimes {
  double prefill = 0;  // of a mixed step: by its share of prompt tokens
  double decode = 0;
  double idle = 0;
};

// What runs the plans; given by the engine, for control knows no execution. Results come in the order of the
// plans.
struct StepRunner {
  std::function<void(const StepPlan&)> launch;
  std::function<bool()> ready;  // collect() would not wait
  std::function<StepResult()> collect;
};

// Obeys until rank 0 says stop. A plan that is there is launched before the result of the one before it is
// collected; rank 0 bounds how many that are.
WorkerTimes obey_plans(Mailbox& mailbox, bool reports, const StepRunner& runner, Pulse& pulse);

}  // namespace maniple
