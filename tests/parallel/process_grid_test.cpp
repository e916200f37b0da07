#include <gtest/gtest.h>
#include <parallel/process_grid.hpp>

#include <set>

namespace maniple {
namespace {

using Groups = std::set<std::vector<int>>;

// The distinct groups of one kind of all ranks.
Groups groups(const GridSize& grid, std::vector<int> GroupRanks::*kind) {
  Groups all;
  for (int rank = 0; rank < grid.ranks(); ++rank) all.insert(groups_of(grid, rank).*kind);
  return all;
}

TEST(ProcessGrid, FourStagesOfTwoTensorRanks) {
  const GridSize grid{2, 4, 1};
  EXPECT_EQ(groups(grid, &GroupRanks::tensor), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groups(grid, &GroupRanks::data), (Groups{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}));
  EXPECT_EQ(groups(grid, &GroupRanks::replica), (Groups{{0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(result_rank_of(grid, 0), 6);
}

TEST(ProcessGrid, TwoOfEach) {
  const GridSize grid{2, 2, 2};
  EXPECT_EQ(groups(grid, &GroupRanks::tensor), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groups(grid, &GroupRanks::data), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(groups(grid, &GroupRanks::replica), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(result_rank_of(grid, 0), 2);
  EXPECT_EQ(result_rank_of(grid, 1), 6);
}

TEST(ProcessGrid, TwoReplicasOfFourTensorRanks) {
  const GridSize grid{4, 1, 2};
  EXPECT_EQ(groups(grid, &GroupRanks::tensor), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(groups(grid, &GroupRanks::data), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(result_rank_of(grid, 1), 4);
}

TEST(ProcessGrid, ContextsAreNeighboursInATensorGroupAndStagesApart) {
  const GridSize grid{.tensor = 4, .pipeline = 2, .data = 1, .context = 2};
  EXPECT_EQ(groups(grid, &GroupRanks::context), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groups(grid, &GroupRanks::stages), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(groups({.tensor = 6, .data = 2, .context = 3}, &GroupRanks::context),
            (Groups{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10, 11}}));
}

// For every grid of up to 64 ranks: positions are a bijection in the documented order, and each kind of group
// parts the ranks into groups of its size.
TEST(ProcessGrid, EveryGridUpTo64RanksIsConsistent) {
  for (int tensor = 1; tensor <= 64; ++tensor) {
    for (int pipeline = 1; tensor * pipeline <= 64; ++pipeline) {
      for (int data = 1; tensor * pipeline * data <= 64; ++data) {
        const GridSize grid{tensor, pipeline, data};
        int rank = 0;
        for (int d = 0; d < data; ++d) {
          for (int p = 0; p < pipeline; ++p) {
            for (int t = 0; t < tensor; ++t, ++rank) {
              ASSERT_EQ(position_in(grid, rank), (GridPosition{t, p, d}));
              ASSERT_EQ(rank_at(grid, {t, p, d}), rank);
              const GroupRanks mine = groups_of(grid, rank);
              ASSERT_EQ(mine.tensor.at(t), rank);
              ASSERT_EQ(mine.data.at(d), rank);
              ASSERT_EQ(mine.replica.at(p * tensor + t), rank);
            }
          }
        }
        const size_t ranks = rank;
        ASSERT_EQ(groups(grid, &GroupRanks::tensor).size() * tensor, ranks);
        ASSERT_EQ(groups(grid, &GroupRanks::data).size() * data, ranks);
        ASSERT_EQ(groups(grid, &GroupRanks::replica).size() * tensor * pipeline, ranks);
      }
    }
  }
}

}  // namespace
}  // namespace maniple
