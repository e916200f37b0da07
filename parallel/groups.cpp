#include <parallel/groups.hpp>
#include <parallel/shared_communicator.hpp>
#include <parallel/timed_communicator.hpp>

namespace maniple {

Groups make_groups(World& world, const RankPlan& plan, Ops& ops, AllReduce how, std::atomic<bool>& waits,
                   const StageRows& rows) {
  const auto make = [&](std::span<const int> ranks) {
    return std::make_unique<TimedCommunicator>(world.make_group(ranks, ops, how), ops.device(), waits);
  };
  Groups groups{.tensor = make(plan.groups.tensor)};
  if (plan.grid.context > 1) groups.context = make(plan.groups.context);
  if (plan.expert().size > 1 && plan.expert_part().size > 1) {
    groups.expert = make(plan.groups.expert);
    groups.expert_tensor = make(plan.groups.expert_tensor);
  }
  if (plan.grid.pipeline > 1)
    groups.stages = world.make_stage_link(
        {fmt::format("stage {} of replica {}", plan.position.pipeline, plan.position.data),
         plan.groups.previous, plan.groups.next},
        rows, ops.device(), waits);
  return groups;
}

size_t shared_bytes(const RankPlan& plan) {
  const bool splits_experts = plan.expert().size > 1 && plan.expert_part().size > 1;
  const int groups = int{plan.grid.tensor > 1} + int{plan.grid.context > 1} + 2 * int{splits_experts};
  return static_cast<size_t>(groups) * SharedCommunicator::bytes_of_rank;
}

}  // namespace maniple
