#include <parallel/groups.hpp>
#include <parallel/timed_communicator.hpp>

namespace maniple {

Groups make_groups(World& world, const RankPlan& plan, Ops& ops, std::atomic<bool>& waits) {
  const auto make = [&](std::span<const int> ranks) {
    return std::make_unique<TimedCommunicator>(world.make_group(ranks, ops), ops.device(), waits);
  };
  return {.tensor = make(plan.groups.tensor)};
}

}  // namespace maniple
