#include <kernels/support/check.hpp>
#include <launch/tools/analysis/compare.hpp>
#include <launch/tools/analysis/requirement.hpp>

#include <support/made_records.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace maniple {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RecordedRun run_named_r(Record record) {
  RecordedRun run{"r", {}};
  run.jobs.push_back({"r", "r", std::move(record), false, {}});
  return run;
}

Side side_of(const MadeJob& job) {
  RecordedRun run = run_named_r(made_job(job));
  Summary summary = summarize(run);
  return {std::move(run), std::move(summary)};
}

Summary summary_of(const char* metric, const char* unit, const std::vector<double>& values) {
  Record record = empty_record();
  for (size_t repeat = 0; repeat < values.size(); ++repeat)
    add_sample(record, metric, unit, repeat, values[repeat]);
  return summarize(run_named_r(std::move(record)));
}

std::string verdict(const char* unit, const std::vector<double>& a, const std::vector<double>& b) {
  return compare(summary_of("m", unit, a), summary_of("m", unit, b)).at(0).verdict;
}

const std::vector<double> low = {10.0, 10.1, 9.9, 10.2, 10.0, 9.8},
                          high = {11.0, 11.1, 10.9, 11.2, 11.0, 10.8};

TEST(Comparison, SaysInWordsWhoIsFaster) {
  EXPECT_EQ(verdict("tok/s", low, high), "B is faster");
  EXPECT_EQ(verdict("tok/s", high, low), "B is slower");
  EXPECT_EQ(verdict("ms", low, high), "B is slower");
  EXPECT_EQ(verdict("s", high, low), "B is faster");
  EXPECT_EQ(verdict("B", low, high), "B is higher");
}

TEST(Comparison, SeesNoDifferenceWhereTheIntervalHoldsOne) {
  EXPECT_EQ(verdict("tok/s", low, low), "no difference seen");
  EXPECT_EQ(verdict("tok/s", {9, 10, 11, 12, 13, 14}, {10, 11, 12, 13, 14, 9.5}), "no difference seen");
}

TEST(Comparison, DoesNotTestSingleRunsOrAFewRepeats) {
  EXPECT_EQ(verdict("ms", {10}, {20}), "not tested: repeats are the unit");
  EXPECT_EQ(verdict("ms", {10, 10, 10}, {20, 20, 20, 20}), "not tested: fewer than 4 repeats");
  const Comparison row = compare(summary_of("m", "ms", {10}), summary_of("m", "ms", {20})).at(0);
  EXPECT_DOUBLE_EQ(row.ratio.median, 2);
  EXPECT_TRUE(std::isnan(row.ratio.low));
}

TEST(Comparison, HasIntervalsOfBothAndOfTheRatio) {
  const Side a = side_of({}), b = side_of({.speed = 1.05});
  const std::vector<Comparison> rows = compare(a.summary, b.summary);
  EXPECT_EQ(rows[0].metric, "out_tok_per_s");
  EXPECT_NEAR(rows[0].ratio.median, 1.05, 1e-9);
  EXPECT_LT(rows[0].ratio.low, 1.05);
  EXPECT_GT(rows[0].ratio.low, 1.04);
  const std::string text = comparison_text(rows);
  EXPECT_THAT(text, HasSubstr("A 251.2 [250.0, 252.5] tok/s"));
  EXPECT_THAT(text, HasSubstr("(n 6, 6)  B is faster\n"));
  EXPECT_THAT(text, HasSubstr("B/A 0.952 "));  // of a step
  const auto object = nlohmann::json::parse(comparison_json(a, b, rows));
  EXPECT_EQ(object["metrics"]["out_tok_per_s"]["verdict"], "B is faster");
  EXPECT_TRUE(object["metrics"]["step_p50_ms"]["ratio"]["low"].is_null());
}

TEST(Comparison, NamesWhatDiffersBetweenTheRuns) {
  const RecordedRun a = run_named_r(made_job({})), b = run_named_r(made_job({.model_hash = "cccc"}));
  EXPECT_TRUE(differences_of(a, a).empty());
  EXPECT_THAT(differences_of(a, b), ElementsAre("the model differs (hash aaaa, hash cccc)"));
  Record other = made_job({});
  other.texts["dtype"] = "fp32";
  other.texts["input_hash"] = "dddd";
  other.texts["repro_level"] = "off";
  EXPECT_THAT(differences_of(a, run_named_r(other)),
              ElementsAre("the input differs (hash bbbb, hash dddd)", "the type differs (bf16, fp32)",
                          "the level of reproducibility differs (batch, off)"));
  Record fp8 = made_job({}), bf16 = made_job({});
  fp8.texts["kv_cache_dtype"] = "fp8";
  EXPECT_TRUE(differences_of(a, run_named_r(fp8)).empty()) << "an older record does not say";
  bf16.texts["kv_cache_dtype"] = "bf16";
  EXPECT_THAT(differences_of(run_named_r(bf16), run_named_r(fp8)),
              ElementsAre("the type of the KV cache differs (bf16, fp8)"));
}

Error missed(const Requirement& requirement, const Summary* a, const Summary& b) {
  try {
    check_requirement(requirement, a, b);
  } catch (const Error& error) {
    return error;
  }
  return {ExitCode::complete, ""};
}

TEST(ARequirement, RelativeToAIsThatOfTheMedians) {
  const Side a = side_of({}), b = side_of({.speed = 0.95});
  EXPECT_EQ(missed({"t", "out_tok_per_s", true, 0.94, true}, &a.summary, b.summary).code(),
            ExitCode::complete);
  const Error error =
      missed({"out_tok_per_s>=0.98x", "out_tok_per_s", true, 0.98, true}, &a.summary, b.summary);
  EXPECT_EQ(error.code(), ExitCode::some_requests_failed);
  EXPECT_STREQ(error.what(), "missed: out_tok_per_s>=0.98x was wanted, 0.95x: 238.7 against 251.2 was found");
}

TEST(ARequirement, WithoutAnOtherRunIsANumber) {
  const Summary summary = side_of({}).summary;
  EXPECT_EQ(missed({"t", "step_p50_ms", false, 51, false}, nullptr, summary).code(), ExitCode::complete);
  EXPECT_EQ(missed({"t", "step_p50_ms", false, 49, false}, nullptr, summary).code(),
            ExitCode::some_requests_failed);
  const Error unknown = missed({"t", "speed", true, 1, false}, nullptr, summary);
  EXPECT_EQ(unknown.code(), ExitCode::input);
  EXPECT_THAT(unknown.remedy(), HasSubstr("it has out_tok_per_s, "));
}

}  // namespace
}  // namespace maniple
