// The communicators of a rank: one for each axis of the grid that needs one.
#pragma once

#include <parallel/communicator.hpp>
#include <parallel/rank_plan.hpp>
#include <parallel/world.hpp>

#include <atomic>
#include <memory>

namespace maniple {

struct Groups {
  std::unique_ptr<Communicator> tensor;

  bool capture() const { return tensor->captures(); }
  double seconds() const { return tensor->seconds(); }  // spent in calls
};

// Collective over all ranks. `ops` as for World::make_group. `waits` is true during a call, when this rank
// may wait for others. Both must outlive the groups.
Groups make_groups(World& world, const RankPlan& plan, Ops& ops, std::atomic<bool>& waits);

}  // namespace maniple
