// The communicators of a rank: one for each axis of the grid that needs one.
#pragma once

#include <parallel/communicator.hpp>
#include <parallel/rank_plan.hpp>
#include <parallel/stage_link.hpp>
#include <parallel/world.hpp>

#include <atomic>
#include <map>
#include <memory>

namespace maniple {

struct Groups {
  std::unique_ptr<Communicator> tensor;

  std::unique_ptr<Communicator> context = {};                     // null unless ranks share a context
  std::unique_ptr<Communicator> expert = {}, expert_tensor = {};  // null unless experts are whole and split
  std::unique_ptr<StageLink> stages = {};                         // null without a pipeline

  // All ranks with the same part of other experts; with other parts of the same experts.
  Communicator& experts() const { return expert ? *expert : *tensor; }
  Communicator& expert_parts() const { return expert_tensor ? *expert_tensor : *tensor; }
  // Calls f(axis, communicator or link) for each.
  template <typename F>
  void for_each(F f) const {
    f(GroupAxis::tensor, *tensor);
    if (context) f(GroupAxis::context, *context);
    if (expert) f(GroupAxis::expert, *expert);
    if (expert_tensor) f(GroupAxis::expert_tensor, *expert_tensor);
    if (stages) f(GroupAxis::pipeline, *stages);
  }

  // Lets messages between stages move while this rank computes.
  void poll() const {
    if (stages) stages->poll();
  }
  // Not where NCCL orders the launches of two communicators: the driver crashed in the upload of such a graph (2.30.7, driver 580.159).
  bool capture() const { return tensor->captures() && !(stages && tensor->size() > 1); }
  std::map<GroupAxis, CollectiveCounts> counts() const {
    std::map<GroupAxis, CollectiveCounts> counts;
    for_each([&](GroupAxis axis, const auto& group) { counts[axis] = group.counts(); });
    return counts;
  }
  // Spent in calls, and in waits for the stage before and after.
  double seconds() const {
    double sum = 0;
    for_each([&](GroupAxis, const auto& group) { sum += group.seconds(); });
    return sum;
  }
};

// Collective over all ranks. `ops` as for World::make_group. `waits` is true during a call, when this rank
// may wait for others. Both must outlive the groups.
// rows: of a step, between stages.
Groups make_groups(World& world, const RankPlan& plan, Ops& ops, AllReduce how, std::atomic<bool>& waits,
                   const StageRows& rows);

// Of the memory in which these groups add where they are inside a node, a rank's share: at most.
size_t shared_bytes(const RankPlan& plan);

}  // namespace maniple
