// The side of a step that every rank has, rank 0 too: receive a plan, run it, answer if this rank reports for
// its replica.
#pragma once

#include <parallel/mailbox.hpp>
#include <runtime/control/health.hpp>
#include <runtime/scheduling/step_plan.hpp>

#include <functional>

namespace maniple {

struct WorkerTimes {
  double prefill = 0;  // of a mixed step: by its share of prompt tokens
  double decode = 0;
  double idle = 0;
};

// Obeys until rank 0 says stop. run is given by the engine: control knows no execution.
WorkerTimes obey_plans(Mailbox& mailbox, bool reports, const std::function<StepResult(const StepPlan&)>& run,
                       Pulse& pulse);

}  // namespace maniple
