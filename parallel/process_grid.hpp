// The position of a rank in the grid, and the ranks of its groups: pure arithmetic, no MPI. World rank =
// ((data * pipeline_size) + pipeline) * tensor_size + tensor: a tensor group is a row of consecutive ranks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace maniple {

struct GridSize {
  int tensor = 1;
  int pipeline = 1;
  int data = 1;
  int context = 1;  // of the tensor ranks: as many neighbours hold the same KV head at other positions
  // Of the tensor ranks: as many hold other experts, and tensor / expert parts of the same.
  int expert = 1;

  int ranks() const { return tensor * pipeline * data; }
  int replica_ranks() const { return tensor * pipeline; }
  bool operator==(const GridSize&) const = default;
};

// The kinds of groups that ranks form. data: the ranks with the same part of the model; pipeline: the stages of a tensor rank.
enum class GroupAxis : uint8_t { tensor, context, expert, expert_tensor, pipeline, data, world };
inline constexpr std::array group_axes = {GroupAxis::tensor,        GroupAxis::context,  GroupAxis::expert,
                                          GroupAxis::expert_tensor, GroupAxis::pipeline, GroupAxis::data,
                                          GroupAxis::world};
constexpr std::string_view name_of(GroupAxis axis) {
  constexpr std::array<std::string_view, group_axes.size()> names = {
      "tensor", "context", "expert", "expert_tensor", "pipeline", "data", "world"};
  return names[static_cast<size_t>(axis)];
}

struct GridPosition {
  int tensor = 0;
  int pipeline = 0;
  int data = 0;

  bool operator==(const GridPosition&) const = default;
};

GridPosition position_in(const GridSize& grid, int rank);
int rank_at(const GridSize& grid, const GridPosition& position);

// World ranks of the groups of one rank, each in group order.
struct GroupRanks {
  std::vector<int> tensor{0};         // one stage of one replica
  std::vector<int> context{0};        // the same KV head
  std::vector<int> expert{0};         // the same part of all experts
  std::vector<int> expert_tensor{0};  // all parts of the same experts
  std::vector<int> stages{0};         // the same tensor rank of every stage of one replica
  std::vector<int> data{0};           // the same part of the model in every replica
  std::vector<int> replica{0};        // all ranks of one copy of the model
  // The same tensor rank of the stage before and after.
  std::optional<int> previous = {}, next = {};

  bool operator==(const GroupRanks&) const = default;
};
GroupRanks groups_of(const GridSize& grid, int rank);
std::vector<int> ranks_of_replica(const GridSize& grid, int data);

// The rank that sends the results of a replica to rank 0: tensor rank 0 of the last stage.
int result_rank_of(const GridSize& grid, int data);

}  // namespace maniple
