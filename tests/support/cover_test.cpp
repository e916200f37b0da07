#include <support/cover.hpp>

#include <set>

namespace maniple::testing {
namespace {

const std::vector<int> numbers{1, 2, 3, 4, 5, 6};
const std::vector<std::string> words{"a", "b", "c"};
const std::vector<bool> answers{false, true};

TEST(Cover, HoldsEachValueOfEachFactor) {
  const auto cover = each_value(numbers, words, answers);
  EXPECT_EQ(cover.size(), whole() ? 36U : 6U);
  std::set<int> seen;
  std::set<std::string> words_seen;
  std::set<bool> answers_seen;
  for (const auto& [number, word, answer] : cover) {
    seen.insert(number);
    words_seen.insert(word);
    answers_seen.insert(answer);
  }
  EXPECT_EQ(seen.size() + words_seen.size() + answers_seen.size(), 11U);
}

TEST(Cover, OfPairsHoldsEveryTwoValues) {
  const auto cover = each_pair(numbers, words, answers);
  EXPECT_TRUE(whole() || cover.size() < 30) << cover.size();
  std::set<std::pair<int, std::string>> first;
  std::set<std::pair<int, bool>> second;
  std::set<std::pair<std::string, bool>> third;
  for (const auto& [number, word, answer] : cover) {
    first.insert({number, word});
    second.insert({number, answer});
    third.insert({word, answer});
  }
  EXPECT_EQ(first.size() + second.size() + third.size(), 18U + 12U + 6U);
}

TEST(Cover, OfOneFactorIsTheFactor) {
  EXPECT_EQ(each_value(numbers).size(), 6U);
  EXPECT_EQ(each_pair(numbers, std::vector{1}).size(), 6U);
  EXPECT_TRUE(each_value(numbers, std::vector<int>{}).empty());
}

TEST(Sample, KeepsTheOrderAndIsNeverEmpty) {
  for (const size_t count : {0U, 1U, 4U, 6U, 100U}) {
    const std::vector<int> some = sampled(numbers, count);
    EXPECT_EQ(some.size(), whole() ? 6U : std::clamp<size_t>(count, 1, 6));
    EXPECT_TRUE(std::ranges::is_sorted(some));
  }
  EXPECT_TRUE(sampled(std::vector<int>{}, 3).empty());
}

TEST(Sample, OfManyCallsTakesAll) {
  std::set<int> seen;
  for (int call = 0; call < 200; ++call)
    for (const int number : sampled(numbers, 1)) seen.insert(number);
  EXPECT_EQ(seen.size(), 6U);
}

}  // namespace
}  // namespace maniple::testing
