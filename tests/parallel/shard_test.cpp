#include <gtest/gtest.h>
#include <parallel/shard.hpp>
#include <parallel/tree_reduce.hpp>

#include <random>

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
