#include <launch/tools/analysis/row_tables.hpp>
#include <launch/tools/analysis/stragglers.hpp>

#include <support/made_records.hpp>

#include <gmock/gmock.h>

namespace maniple {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(ASlowRank, OfATensorGroupIsNamedWithItsTime) {
  const std::vector<Straggler> found = slow_ranks(made_job({.slow_rank = 3}));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rank, 3);
  EXPECT_NEAR(found[0].ratio, 1.25, 0.02);
  EXPECT_NEAR(found[0].from_s, 10, 2);
  EXPECT_NEAR(found[0].to_s, 30, 2);
  EXPECT_EQ(slow_ranks(made_job({.slow_rank = 3, .complete = false})).size(), 1U) << "while the job runs";
}

TEST(ASlowRank, IsNotNamedForAFewWindowsOrForNothing) {
  EXPECT_THAT(slow_ranks(made_job({})), IsEmpty());
  EXPECT_THAT(slow_ranks(made_job({.slow_rank = 1, .seconds = 18})), IsEmpty());  // 8 s
  EXPECT_THAT(slow_ranks(empty_record()), IsEmpty());
}

RecordedJob job_of(Record record) { return {"job 1", "r", std::move(record), false, {}}; }

TEST(TheTableOfRanks, HasImbalanceBlocksAndSlowRanks) {
  const std::string text = rank_table_text(job_of(made_job({.slow_rank = 3})));
  for (const char* part :
       {"\n     3 n2                 1   1     4.00", "max/mean                            1.60",
        "max/median", "KV blocks: rank 2 on n2 set their number: it had room for 80, another one for 100\n",
        "slow: rank 3 on n2: own time 1.2", "--exclude=n2\n"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(rank_table_text(job_of(made_job({}))), HasSubstr("slow: none\n"));
}

TEST(TheTableOfRanks, TakesTheNumberOfBlocksWhereItIsRecorded) {
  struct Row {
    int32_t rank;
    uint32_t fitting_blocks;
  };
  Record record = empty_record();
  for (int rank = 0; rank < 2; ++rank) add_place(record, rank, rank, rank, 0);
  StoredTable& ranks = record.tables[static_cast<size_t>(TableId::ranks)];
  ranks.table = {"ranks",
                 sizeof(Row),
                 {{"rank", FieldType::i32, offsetof(Row, rank), 4, ""},
                  {"fitting_blocks", FieldType::u32, offsetof(Row, fitting_blocks), 4, "blocks"}}};
  add_row(record, TableId::ranks, Row{0, 120});
  add_row(record, TableId::ranks, Row{1, 100});
  EXPECT_THAT(
      rank_table_text(job_of(record)),
      HasSubstr("KV blocks: rank 1 on n2 set their number: it had room for 100, another one for 120\n"));
}

TEST(TheTableOfRanks, OfNoRanksSaysSo) {
  EXPECT_EQ(rank_table_text(job_of(empty_record())), "job 1: nothing was recorded of its ranks\n");
}

}  // namespace
}  // namespace maniple
