#include <runtime/start/start.hpp>

#include <gtest/gtest.h>

namespace maniple {
namespace {

std::vector<RankLocation> on_one_node(int ranks) {
  std::vector<RankLocation> locations;
  for (int rank = 0; rank < ranks; ++rank) locations.push_back({"nid1", 0, rank, ranks});
  return locations;
}

TEST(ShareCpus, RanksThatShareAMaskDivideIt) {
  const std::vector<std::vector<int>> masks(2, {0, 1, 2, 3, 8});
  const RankPlace first = share_cpus(masks, on_one_node(2), 0, {}),
                  second = share_cpus(masks, on_one_node(2), 1, {});
  EXPECT_EQ(first.threads, 2);
  EXPECT_EQ(first.cpus, (std::vector<int>{0, 1}));
  EXPECT_EQ(second.cpus, (std::vector<int>{2, 3}));
}

TEST(ShareCpus, AMaskOfItsOwnIsUsedWhole) {
  const std::vector<std::vector<int>> masks{{0, 1}, {2, 3}};
  EXPECT_EQ(share_cpus(masks, on_one_node(2), 1, {}).cpus, (std::vector<int>{2, 3}));
}

TEST(ShareCpus, TheSameMaskOnAnotherNodeIsAnother) {
  const std::vector<std::vector<int>> masks(2, {0, 1});
  const std::vector<RankLocation> locations{{"a", 0, 0, 1}, {"b", 1, 0, 1}};
  EXPECT_EQ(share_cpus(masks, locations, 1, {}).cpus, (std::vector<int>{0, 1}));
}

TEST(ShareCpus, MoreRanksThanCpusGetAThreadEachThatIsNotPinned) {
  const std::vector<std::vector<int>> masks(8, {0, 1});
  const RankPlace share = share_cpus(masks, on_one_node(8), 7, {});
  EXPECT_EQ(share.threads, 1);
  EXPECT_TRUE(share.cpus.empty());
}

TEST(ShareCpus, AStatedNumberOfThreadsIsPinnedOnlyWhereItFits) {
  const std::vector<std::vector<int>> masks{{4, 5, 6}};
  EXPECT_EQ(share_cpus(masks, on_one_node(1), 0, 2).cpus, (std::vector<int>{4, 5}));
  const RankPlace many = share_cpus(masks, on_one_node(1), 0, 4);
  EXPECT_EQ(many.threads, 4);
  EXPECT_TRUE(many.cpus.empty());
}

}  // namespace
}  // namespace maniple
