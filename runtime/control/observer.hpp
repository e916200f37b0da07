// What an experiment records of a run while it is served: a row for each step and each request. Times are seconds since
// rank 0 began to serve, by its steady clock; what is not known is NaN.
#pragma once

#include <cstdint>

namespace maniple {

// A step of one replica, made when its result has arrived. In records of 0.3.0 near their limit several steps are merged into
// one row, whose sums and counts are those of all of them.
struct StepRow {
  uint64_t step = 0;
  uint32_t replica = 0;
  uint32_t weight = 1;    // steps in this row: one
  double planned_s = 0;   // when the plan was begun
  double answered_s = 0;  // when the result arrived
  double schedule_s = 0;  // of the scheduler
  double transit_s = 0;   // the rest: messages, and the wait for the step before
  double forward_s = 0;   // of the rank that answers, see StepTimes
  double sample_s = 0;
  double comm_s = 0;
  uint64_t sequences = 0;  // in the batch
  uint64_t tokens = 0;     // computed
  uint64_t prompt_tokens =
      0;  // of these, tokens that the plan knew: of prompts, and of what a preemption dropped
  uint64_t sampled = 0;
  uint64_t context = 0;   // sum of the lengths before the step
  uint64_t attended = 0;  // sum over the computed tokens of the positions that each sees, its own included
  uint64_t plan_bytes = 0;
  uint64_t result_bytes = 0;
  uint64_t waiting = 0;  // requests of the replica, when the plan was made
  uint64_t running = 0;
  uint64_t free_blocks = 0;
  uint64_t held_blocks = 0;
  uint64_t held_window_blocks = 0;  // of layers with a window
  uint64_t kv_tokens = 0;           // in slots of held blocks
  uint64_t preemptions = 0;         // of the replica, so far
};

// A request that has ended.
struct RequestRow {
  uint64_t id = 0;  // its index in the input
  uint32_t replica = 0;
  uint32_t preemptions = 0;
  char reason[8] = {};  // "stop", "length", "error"
  uint64_t prompt = 0;  // tokens
  uint64_t cached = 0;  // of these, from the prefix cache
  uint64_t output = 0;
  double arrival_s = 0;   // when the service took it from its source
  double admitted_s = 0;  // when its first step was planned
  double first_s = 0;     // when its first token arrived
  double done_s = 0;
  double queue_s = 0;  // admitted_s - arrival_s
  double ttft_s = 0;   // first_s - admitted_s
  double tpot_s = 0;   // (done_s - first_s) / (tokens of the longest answer - 1)
  double itl_p50_s = 0, itl_p90_s = 0, itl_p99_s = 0, itl_max_s = 0;  // gaps between tokens
  double e2e_s = 0;                                                   // done_s - arrival_s
};

// Called on the coordinator's thread; must not wait.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void step(const StepRow& row) = 0;
  virtual void request(const RequestRow& row) = 0;
};

}  // namespace maniple
