#include <kernels/support/check.hpp>
#include <parallel/process_grid.hpp>

namespace maniple {

GridPosition position_in(const GridSize& grid, int rank) {
  require(0 <= rank && rank < grid.ranks(), "a rank outside the grid");
  const int stage = rank / grid.tensor;
  return {rank % grid.tensor, stage % grid.pipeline, stage / grid.pipeline};
}

int rank_at(const GridSize& grid, const GridPosition& position) {
  return (position.data * grid.pipeline + position.pipeline) * grid.tensor + position.tensor;
}

namespace {

// Every `stride`-th of `count` ranks from `first` on.
std::vector<int> every(int first, int stride, int count) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

}  // namespace

std::vector<int> ranks_of_replica(const GridSize& grid, int data) {
  return every(data * grid.replica_ranks(), 1, grid.replica_ranks());
}

GroupRanks groups_of(const GridSize& grid, int rank) {
  const GridPosition mine = position_in(grid, rank);
  const int parts = grid.tensor / grid.expert, stage_begin = rank_at(grid, {0, mine.pipeline, mine.data});
  const auto at_stage = [&](int stage) {
    const bool exists = 0 <= stage && stage < grid.pipeline;
    return exists ? std::optional(rank_at(grid, {mine.tensor, stage, mine.data})) : std::nullopt;
  };
  return {.tensor = every(stage_begin, 1, grid.tensor),
          .context = every(rank - mine.tensor % grid.context, 1, grid.context),
          .expert = every(stage_begin + mine.tensor % parts, parts, grid.expert),
          .expert_tensor = every(stage_begin + mine.tensor / parts * parts, 1, parts),
          .stages = every(rank_at(grid, {mine.tensor, 0, mine.data}), grid.tensor, grid.pipeline),
          .data = every(rank_at(grid, {mine.tensor, mine.pipeline, 0}), grid.replica_ranks(), grid.data),
          .replica = ranks_of_replica(grid, mine.data),
          .previous = at_stage(mine.pipeline - 1),
          .next = at_stage(mine.pipeline + 1)};
}

int result_rank_of(const GridSize& grid, int data) { return rank_at(grid, {0, grid.pipeline - 1, data}); }

}  // namespace maniple
