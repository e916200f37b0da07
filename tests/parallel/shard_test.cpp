#include <gtest/gtest.h>
#include <parallel/shard.hpp>
#include <parallel/tree_reduce.hpp>

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>

namespace maniple {

namespace {

using Heads = std::vector<int64_t>;

std::string refusal(auto f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::input);
    return error.what();
  }
  return "accepted";
}

TEST(Shard, EvenPartsLieSideBySide) {
  EXPECT_EQ(even_shard(12, 3, 0, "heads"), (IndexRange{0, 4}));
  EXPECT_EQ(even_shard(12, 3, 2, "heads"), (IndexRange{8, 12}));
  EXPECT_EQ(refusal([] { even_shard(14, 4, 0, "attention heads"); }),
            "attention heads (14) do not divide by tensor ranks (4)");
}

// Layers of each stage; layers of cost 1, and a head that costs as much as `head` layers.
Heads stages_of(size_t layers, double head, int stages) {
  constexpr double unit = 1e8;
  const std::vector<int64_t> costs(layers, static_cast<int64_t>(unit));
  Heads counts;
  int64_t end = 0;
  for (const IndexRange& stage : stage_layers(costs, static_cast<int64_t>(head * unit), stages)) {
    EXPECT_EQ(stage.begin, end);
    end = stage.end;
    counts.push_back(stage.size());
  }
  EXPECT_EQ(end, static_cast<int64_t>(layers));
  return counts;
}

TEST(Shard, StagesCostAboutTheSame) {
  const struct {
    size_t layers;
    double head;
    std::vector<Heads> stages;
  } models[] = {
      {28, 9.89, {{19, 9}, {12, 13, 3}, {9, 9, 9, 1}}},  // Qwen3-0.6B, -8B, -32B, -30B-A3B, the demo
      {36, 3.23, {{20, 16}, {13, 13, 10}, {10, 10, 10, 6}}},
      {64, 1.60, {{33, 31}, {22, 22, 20}, {16, 16, 17, 15}}},
      {48, 0.50, {{24, 24}, {16, 16, 16}, {12, 12, 12, 12}}},
      {5, 0.5, {{3, 2}, {2, 2, 1}, {1, 1, 2, 1}, {1, 1, 1, 1, 1}}},
      {28, 0, {{14, 14}, {9, 10, 9}, {7, 7, 7, 7}}},
      {61, 0, {{31, 30}, {20, 21, 20}, {15, 15, 16, 15}}},
      {40, 0, {{20, 20}, {13, 14, 13}, {10, 10, 10, 10}}}};
  for (const auto& [layers, head, splits] : models)
    for (const Heads& split : splits)
      EXPECT_EQ(stages_of(layers, head, static_cast<int>(split.size())), split)
          << layers << ", head " << head;
  EXPECT_EQ(stages_of(3, 100, 1), Heads{3});
  EXPECT_THROW(stages_of(3, 0, 4), Error);
}

// Every split of a few layers of uneven cost, judged by the rule as it is written.
TEST(Shard, NoOtherSplitOfUnevenLayersIsBetter) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<int64_t> costs(static_cast<size_t>(4 + round % 5));
    for (int64_t& cost : costs) cost = 1000 * (1 + static_cast<int64_t>(random() % 4));
    const int64_t head = 1000 * static_cast<int64_t>(random() % 5);
    const int stages = 2 + round % 3;
    const auto judged = [&](const std::vector<size_t>& begins) {
      int64_t dearest = 0, squares = 0;
      std::vector<int64_t> counts;
      for (size_t stage = 0; stage < begins.size(); ++stage) {
        const size_t end = stage + 1 < begins.size() ? begins[stage + 1] : costs.size();
        int64_t cost = end == costs.size() ? head : 0;
        for (size_t layer = begins[stage]; layer < end; ++layer) cost += costs[layer];
        dearest = std::max(dearest, cost);
        squares += cost * cost;
        counts.push_back(static_cast<int64_t>(end - begins[stage]));
      }
      std::rotate(counts.begin(), counts.end() - 1, counts.end());
      return std::tuple(dearest, squares, counts);
    };
    auto best = judged([&] {
      std::vector<size_t> begins(static_cast<size_t>(stages));
      std::iota(begins.begin(), begins.end(), 0);
      return begins;
    }());
    for (unsigned cuts = 0; cuts < 1u << (costs.size() - 1); ++cuts) {
      std::vector<size_t> begins{0};
      for (size_t layer = 1; layer < costs.size(); ++layer)
        if (cuts >> (layer - 1) & 1) begins.push_back(layer);
      if (begins.size() == static_cast<size_t>(stages)) best = std::min(best, judged(begins));
    }
    std::vector<size_t> found;
    for (const IndexRange& stage : stage_layers(costs, head, stages))
      found.push_back(static_cast<size_t>(stage.begin));
    EXPECT_EQ(judged(found), best) << "round " << round;
  }
}

TEST(Shard, KvHeadsAreSharedWhereRanksOutnumberThem) {
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(kv_head_shard(16, 2, 8, rank), Heads{rank < 4 ? 0 : 1});
  EXPECT_EQ(kv_head_shard(16, 8, 2, 1), (Heads{4, 5, 6, 7}));
  EXPECT_EQ(kv_head_shard(8, 8, 8, 5), Heads{5});
  // Two query heads a rank, three a KV head: the middle rank needs both.
  EXPECT_EQ(kv_head_shard(6, 2, 3, 0), (Heads{0, 0}));
  EXPECT_EQ(kv_head_shard(6, 2, 3, 1), (Heads{0, 1}));
  EXPECT_EQ(kv_head_shard(6, 2, 3, 2), (Heads{1, 1}));
  EXPECT_EQ(kv_head_shard(6, 2, 6, 3), Heads{1});
}

TEST(Shard, KvHeadsThatDoNotDivideAreRefused) {
  EXPECT_EQ(refusal([] { kv_head_shard(24, 8, 3, 0); }), "kv heads (8) do not divide by tensor ranks (3)");
}

TEST(Shard, BalancedPartsCoverEverythingInOrder) {
  for (int parts = 1; parts <= 9; ++parts)
    for (int part = 0, end = 0; part < parts; ++part) {
      const IndexRange range = balanced_shard(224, parts, part);
      EXPECT_EQ(range.begin, end);
      EXPECT_GE(range.size(), 224 / parts);
      EXPECT_LE(range.size(), 224 / parts + 1);
      end = static_cast<int>(range.end);
      if (part + 1 == parts) {
        EXPECT_EQ(end, 224);
      }
    }
}

TEST(Shard, VocabularyRangesAreContiguousAndCoverEveryIdOnce) {
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    const int64_t vocabulary = std::uniform_int_distribution<int64_t>(1, 64000)(random);
    for (const int parts : {1, 2, 3, 4, 6, 8}) {
      int64_t padded = 0, valid = 0;
      for (int part = 0; part < parts; ++part) {
        const VocabularyShard shard = vocabulary_shard(vocabulary, parts, part);
        EXPECT_EQ(shard.padded.begin, padded);
        EXPECT_EQ(shard.padded.size(), padded_vocabulary(vocabulary, parts) / parts);
        EXPECT_EQ(shard.valid.begin, valid);
        EXPECT_GE(shard.valid.size(), 0);
        EXPECT_LE(shard.valid.end, shard.padded.end);
        padded = shard.padded.end;
        valid = shard.valid.end;
      }
      EXPECT_EQ(valid, vocabulary);
      EXPECT_EQ(padded, padded_vocabulary(vocabulary, parts));
      EXPECT_EQ(padded % 64, 0);
      EXPECT_LT(padded - vocabulary, 64 * parts);
    }
  }
}

TEST(Shard, APaddedVocabularyLeavesTheLastRanksEmpty) {
  EXPECT_EQ(padded_vocabulary(151669, 1), 151680);
  EXPECT_EQ(padded_vocabulary(151669, 8), 151680);
  EXPECT_EQ(padded_vocabulary(100, 3), 192);
  const VocabularyShard last = vocabulary_shard(10, 4, 3);  // 64 ids, 16 a rank
  EXPECT_EQ(last.padded, (IndexRange{48, 64}));
  EXPECT_EQ(last.valid.size(), 0);
  EXPECT_EQ(vocabulary_shard(10, 4, 0).valid, (IndexRange{0, 10}));
}

TEST(Shard, ReductionSlicesDoNotDependOnTheRanksWhereTheseDivideThem) {
  for (const int parts : {1, 2, 4, 8}) {
    const ReductionSlices slices = reduction_slices(3072, parts);
    EXPECT_EQ(slices.total, 8);
    EXPECT_EQ(slices.local, 8 / parts);
    EXPECT_TRUE(slices.independent_of_parts);
  }
  EXPECT_EQ(reduction_slices(4 * 25, 1).total, 4);
  EXPECT_EQ(reduction_slices(4 * 25, 4).local, 1);
  EXPECT_EQ(reduction_slices(99, 1).total, 1);
}

TEST(Shard, RanksThatDoNotDivideTheSlicesAreOneSliceEach) {
  for (const int parts : {3, 6}) {
    const ReductionSlices slices = reduction_slices(3072, parts);
    EXPECT_EQ(slices.total, parts);
    EXPECT_EQ(slices.local, 1);
    EXPECT_FALSE(slices.independent_of_parts);
  }
}

std::string written(int size) {
  std::string text;
  for (const auto& level : tree_levels(size)) {
    text += "|";
    for (const TreeAddition& addition : level) text += fmt::format("{}+{} ", addition.to, addition.from);
  }
  return text;
}

TEST(TreeReduce, NearestRanksFirstAndAnOddOnePassesUp) {
  EXPECT_EQ(written(1), "");
  EXPECT_EQ(written(2), "|0+1 ");
  EXPECT_EQ(written(3), "|0+1 |0+2 ");
  EXPECT_EQ(written(5), "|0+1 2+3 |0+2 |0+4 ");
  EXPECT_EQ(written(6), "|0+1 2+3 4+5 |0+2 |0+4 ");
  EXPECT_EQ(written(8), "|0+1 2+3 4+5 6+7 |0+2 4+6 |0+4 ");
}

}  // namespace

}  // namespace maniple
