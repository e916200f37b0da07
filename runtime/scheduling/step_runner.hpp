// What runs the plans of steps on a rank: the model's runner, or one without a model in a bench or a test.
#pragma once

#include <runtime/scheduling/step_plan.hpp>

namespace maniple {

// What a rank shows of a step that replays a graph, in place of the layer in progress: this + the sequences that the graph has room for.
inline constexpr uint32_t in_graph = 1U << 31;

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // Starts the plan's work; does not wait for earlier plans. Throws Error (fault) when the plan does not fit this rank's state.
  virtual void launch(const StepPlan& plan) = 0;
  // Whether collect() would not wait. Only while a plan was launched and not collected.
  virtual bool ready() const = 0;
  // The result of the oldest plan that was launched and not collected; waits for it if it is not ready.
  virtual StepResult collect() = 0;
};

}  // namespace maniple
