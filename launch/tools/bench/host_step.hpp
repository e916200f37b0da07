// A step that computes nothing: what the host of rank 0 and of the ranks of a replica adds to each step of a run.
#pragma once

#include <kernels/ops.hpp>
#include <parallel/world.hpp>
#include <runtime/control/rank_activity.hpp>

#include <atomic>

namespace maniple {

// The job's own ranks serve requests as `generate` does: scheduler, plans and answers as messages, mirror of the sequences,
// arrays of the batch and of its sampled rows, bookkeeping of the requests. Only the model is missing: each answer has the
// same token.
class HostStep {
 public:
  // Collective. The references must outlive it.
  HostStep(World& world, int tensor_size, Ops& ops, RankActivity& activity);

  // Collective. Seconds of a decode step of so many sequences in every replica, on average over `steps` in a row: from a plan to
  // the next. 0 on the ranks other than 0.
  double seconds(uint32_t sequences, uint32_t steps);

 private:
  double serve(uint32_t sequences, uint32_t steps, const std::atomic<bool>& worker_failed);
  void work(uint32_t sequences);

  World& world_;
  const int tensor_size_;
  Ops& ops_;
  RankActivity& activity_;
  Channel channel_;
};

}  // namespace maniple
