#include <gtest/gtest.h>
#include <kernels/support/check.hpp>
#include <parallel/process_grid.hpp>

#include <algorithm>
#include <set>

namespace maniple {

namespace {

using Groups = std::set<std::vector<int>>;

// The distinct groups of all ranks along one axis.
Groups groups(const ProcessGrid& grid, std::vector<int> (ProcessGrid::*axis)(int) const) {
  Groups all;
  for (int rank = 0; rank < grid.size().ranks(); ++rank) all.insert((grid.*axis)(rank));
  return all;
}

std::string refusal(int ranks, int tensor, int pipeline) {
  try {
    ProcessGrid::of(ranks, tensor, pipeline);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "accepted";
}

TEST(ProcessGrid, four_stages_of_two_tensor_ranks) {
  const ProcessGrid grid = ProcessGrid::of(8, 2, 4);
  EXPECT_EQ(grid.size(), (GridSize{2, 4, 1}));
  EXPECT_EQ(groups(grid, &ProcessGrid::tensor_group), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groups(grid, &ProcessGrid::pipeline_group), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(groups(grid, &ProcessGrid::data_group), (Groups{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}));
  EXPECT_EQ(grid.reporter(0), 6);
}

TEST(ProcessGrid, two_of_each) {
  const ProcessGrid grid = ProcessGrid::of(8, 2, 2);
  EXPECT_EQ(grid.size(), (GridSize{2, 2, 2}));
  EXPECT_EQ(groups(grid, &ProcessGrid::tensor_group), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(groups(grid, &ProcessGrid::pipeline_group), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(groups(grid, &ProcessGrid::data_group), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(grid.replica(1), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(grid.reporter(0), 2);
  EXPECT_EQ(grid.reporter(1), 6);
}

TEST(ProcessGrid, two_replicas_of_four_tensor_ranks) {
  const ProcessGrid grid = ProcessGrid::of(8, 4);
  EXPECT_EQ(grid.size(), (GridSize{4, 1, 2}));
  EXPECT_EQ(groups(grid, &ProcessGrid::tensor_group), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(groups(grid, &ProcessGrid::data_group), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(grid.reporter(1), 4);
}

TEST(ProcessGrid, eight_tensor_ranks) {
  const ProcessGrid grid = ProcessGrid::of(8, 8);
  EXPECT_EQ(grid.size(), (GridSize{8, 1, 1}));
  EXPECT_EQ(groups(grid, &ProcessGrid::tensor_group), (Groups{{0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(grid.replica(0), grid.tensor_group(3));
}

// For every grid of up to 64 ranks: positions are a bijection in the documented order, and each axis parts
// the ranks into groups of its size.
TEST(ProcessGrid, every_grid_up_to_64_ranks_is_consistent) {
  for (int tensor = 1; tensor <= 64; ++tensor) {
    for (int pipeline = 1; tensor * pipeline <= 64; ++pipeline) {
      for (int data = 1; tensor * pipeline * data <= 64; ++data) {
        const ProcessGrid grid = ProcessGrid::of(tensor * pipeline * data, tensor, pipeline);
        ASSERT_EQ(grid.size(), (GridSize{tensor, pipeline, data}));
        int rank = 0;
        for (int d = 0; d < data; ++d) {
          for (int p = 0; p < pipeline; ++p) {
            for (int t = 0; t < tensor; ++t, ++rank) {
              ASSERT_EQ(grid.position(rank), (GridPosition{t, p, d}));
              ASSERT_EQ(grid.rank({t, p, d}), rank);
              ASSERT_EQ(grid.tensor_group(rank).at(t), rank);
              ASSERT_EQ(grid.pipeline_group(rank).at(p), rank);
              ASSERT_EQ(grid.data_group(rank).at(d), rank);
              ASSERT_EQ(grid.replica(d).at(p * tensor + t), rank);
            }
          }
        }
        const size_t ranks = rank;
        ASSERT_EQ(groups(grid, &ProcessGrid::tensor_group).size() * tensor, ranks);
        ASSERT_EQ(groups(grid, &ProcessGrid::pipeline_group).size() * pipeline, ranks);
        ASSERT_EQ(groups(grid, &ProcessGrid::data_group).size() * data, ranks);
      }
    }
  }
}

TEST(ProcessGrid, a_size_that_does_not_divide_names_those_that_do) {
  EXPECT_EQ(refusal(6, 4, 1),
            "ranks (6) do not divide by --tp 4; use --tp 1, 2, 3 or 6, or start a multiple of 4 ranks");
  EXPECT_EQ(
      refusal(8, 3, 2),
      "ranks (8) do not divide by --tp 3 times --pp 2; use --tp 1, 2 or 4, or start a multiple of 6 ranks");
  EXPECT_EQ(
      refusal(4, 2, 3),
      "ranks (4) do not divide by --tp 2 times --pp 3; use --pp 1, 2 or 4, or start a multiple of 6 ranks");
  EXPECT_EQ(refusal(1, 2, 1),
            "ranks (1) do not divide by --tp 2; use --tp 1, or start a multiple of 2 ranks");
}

TEST(ProcessGrid, sizes_below_one_are_refused) {
  EXPECT_EQ(refusal(4, 0, 1), "--tp 0 is not a number of ranks; use --tp 1 or more");
  EXPECT_EQ(refusal(4, 1, -2), "--pp -2 is not a number of stages; use --pp 1 or more");
  EXPECT_NE(refusal(4, 65536, 65536), "accepted");  // their product does not fit an int
}

}  // namespace

}  // namespace maniple
