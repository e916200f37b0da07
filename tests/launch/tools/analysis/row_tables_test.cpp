#include <launch/tools/analysis/row_tables.hpp>
#include <support/made_records.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace maniple {
namespace {

using testing::HasSubstr;

RecordedRun run_in_a_file(Record record) {
  return {"a.h5", {{"a.h5", "a.h5", std::move(record), false, {}}}};
}

void add_step(Record& record, uint32_t weight, double begin, double end, uint64_t sequences) {
  StepRow row{.weight = weight,
              .planned_s = begin,
              .answered_s = end,
              .schedule_s = 0.01 * (end - begin),
              .transit_s = 0.09 * (end - begin),
              .forward_s = 0.8 * (end - begin),
              .sample_s = 0.1 * (end - begin),
              .comm_s = 0.2 * (end - begin),
              .sequences = sequences,
              .tokens = sequences,
              .held_blocks = 10,
              .kv_tokens = 120};
  add_row(record, TableId::steps, row);
}

// Two steps of 10 ms, one of 30 ms; one row of 4 steps with 12 sequences each.
TEST(StepTable, GroupsByTheNumberOfSequences) {
  Record record = empty_record();
  record.texts["options"] = R"({"in_force": {"block_size": 16}})";
  add_step(record, 1, 0.00, 0.01, 2);
  add_step(record, 1, 0.01, 0.02, 3);
  add_step(record, 1, 0.02, 0.05, 3);
  add_step(record, 4, 0.05, 0.13, 48);
  const std::string text = step_table_text(run_in_a_file(std::move(record)));
  EXPECT_THAT(text, HasSubstr("          2-3        3    10.00    26.00    29.60     2.67     80.0     20.0  "
                              "   10.0      1.0      9.0     25.0\n"));
  EXPECT_THAT(text, HasSubstr("         8-15        4    20.00    20.00    20.00    12.00     80.0"));
  EXPECT_THAT(step_table_text(run_in_a_file(empty_record())), HasSubstr("no steps were recorded"));
}

TEST(RequestTable, HasQuantilesAndTheSlowestTen) {
  const RecordedRun run = run_in_a_file(made_job({}));
  const std::string text = request_table_text(run, summarize(run));
  EXPECT_THAT(text, HasSubstr("TPOT (ms)              50.00     50.00     50.00     50.00\n"));
  EXPECT_THAT(
      text,
      HasSubstr("TTFT (ms)              195.0     271.0     288.1     290.0\n"));  // 100, 110, ... 290 ms
  EXPECT_THAT(text, HasSubstr("output (tokens)        21.00     21.00     21.00     21.00\n"));
  const size_t slowest = text.find("# slowest"), first = text.find('\n', slowest) + 1;
  EXPECT_EQ(std::ranges::count(text.substr(first), '\n'), 10);
  EXPECT_EQ(std::stoi(text.substr(first)), 19);  // the last one began last
}

TEST(Fom, IsOneLineForTestSuites) {
  const RecordedRun run = run_in_a_file(made_job({}));
  EXPECT_EQ(fom_text(summarize(run)), "fom: out_tok_per_s = 251.2 tokens/s\n");
  EXPECT_EQ(fom_text(Summary{}), "");
}

}  // namespace
}  // namespace maniple
