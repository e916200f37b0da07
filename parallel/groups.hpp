// The communicators of a rank, one for each kind of group that it works in.
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
  double seconds() const { return tensor->seconds(); }  // that calls took
};

// Collective over all ranks, which make their groups in one order; `ops` as for World::make_group. `waits` is
// true while a call waits for other ranks. Both must outlive the groups.
Groups make_groups(World& world, const RankPlan& plan, Ops& ops, std::atomic<bool>& waits);

}  // namespace maniple
