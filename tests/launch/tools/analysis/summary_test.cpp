#include <launch/tools/analysis/summary.hpp>
#include <launch/tools/analysis/summary_text.hpp>

#include <support/made_records.hpp>
#include <support/temp_directory.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace maniple {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

RecordedRun run_of(std::vector<Record> records) {
  RecordedRun run{"r", {}};
  for (Record& record : records)
    run.jobs.push_back({"job " + std::to_string(run.jobs.size() + 1), "r", std::move(record), false, {}});
  return run;
}

StepRow step(uint32_t replica, double planned, double answered, uint32_t weight = 1) {
  StepRow row{};
  row.replica = replica;
  row.weight = weight;
  row.planned_s = planned;
  row.answered_s = answered;
  return row;
}

RequestRow request(uint64_t output, double ttft, double tpot) {
  RequestRow row{};
  row.prompt = 10;
  row.output = output;
  row.ttft_s = ttft;
  row.tpot_s = tpot;
  row.itl_p50_s = row.itl_p90_s = row.itl_p99_s = row.itl_max_s = tpot;
  row.e2e_s = 1;
  return row;
}

TEST(Summary, StepTimesOfTwoInFlightDoNotOverlap) {
  Record record = empty_record();
  // Planned while the step before was computed: it takes from that one's answer to its own.
  add_row(record, TableId::steps, step(0, 0.0, 0.1));
  add_row(record, TableId::steps, step(0, 0.05, 0.3));
  add_row(record, TableId::steps, step(1, 0.0, 0.4));
  add_row(record, TableId::steps, step(0, 1.0, 1.3));  // idle before it
  const Summary summary = summarize(run_of({record}));
  EXPECT_EQ(summary.steps, 4U);
  EXPECT_NEAR(summary.step_ms.mean, 250, 1e-9);
  EXPECT_NEAR(summary.step_ms.p50, 250, 1e-9);
  EXPECT_NEAR(summary.step_ms.max, 400, 1e-9);
  EXPECT_NEAR(summary.seconds, 1.3, 1e-12);
}

TEST(Summary, ARowOfSeveralStepsCountsAsThatMany) {
  Record record = empty_record();
  add_row(record, TableId::steps, step(0, 0, 0.4, 4));
  add_row(record, TableId::steps, step(0, 0.4, 1.4, 2));
  const Summary summary = summarize(run_of({record}));
  EXPECT_EQ(summary.steps, 6U);
  EXPECT_NEAR(summary.step_ms.mean, 1400.0 / 6, 1e-9);
  EXPECT_NEAR(summary.step_ms.p50, 100, 1e-9);
  EXPECT_NEAR(summary.step_ms.max, 500, 1e-9);
}

TEST(Summary, ThroughputIsTokensOverTheTimeOfServing) {
  const Summary summary = summarize(run_of({made_job({.seconds = 40})}));
  // 800 steps a replica, of 8 + 1.5 and of 16 + 1.5 tokens on average, in 40 s
  EXPECT_EQ(summary.output_tokens, 800U * 27);
  EXPECT_NEAR(summary.find("total_tok_per_s")->median(), (800 * 27 + 20 * 100) / 40.0, 1e-6);
  EXPECT_NEAR(summary.find("req_per_s")->median(), 0.5, 1e-9);
  EXPECT_EQ(summary.find("out_tok_per_s")->values.size(), 6U) << "what was measured in repeats comes first";
}

TEST(Summary, JobsOfARunAreJoined) {
  const Summary summary = summarize(run_of({made_job({.seconds = 10}), made_job({.seconds = 20})}));
  EXPECT_EQ(summary.requests, 40U);
  EXPECT_NEAR(summary.seconds, 30, 1e-6);
  EXPECT_EQ(summary.output_tokens, 600U * 27);
  EXPECT_EQ(summary.find("out_tok_per_s")->values.size(), 12U);
}

TEST(Summary, TimesOfRequestsLeaveOutWhatDidNotHappen) {
  Record record = empty_record();
  add_row(record, TableId::requests, request(1, 0.1, not_recorded));  // one token has no gap
  add_row(record, TableId::requests, request(11, 0.2, 0.05));
  add_row(record, TableId::requests, request(5, 0.3, 0.1));
  add_row(record, TableId::requests, request(0, not_recorded, not_recorded));  // failed
  const Summary summary = summarize(run_of({record}));
  EXPECT_EQ(summary.failed, 1U);
  EXPECT_NEAR(summary.ttft_ms.mean, 200, 1e-9);
  EXPECT_NEAR(summary.tpot_ms.p50, 75, 1e-9);
  EXPECT_NEAR(summary.itl_ms.mean, (10 * 50 + 4 * 100) / 14.0, 1e-9);
  EXPECT_NEAR(summary.itl_ms.max, 100, 1e-9);
}

TEST(Summary, EmptySlotsAreTheShareOfHeldBlocksWithoutToken) {
  Record record = made_job({});  // 240 tokens in 20 blocks of 16
  EXPECT_NEAR(summarize(run_of({record})).empty_slots, 0.25, 1e-12);
  record.texts["options"] = R"({"in_force": {"block_size": 24}})";
  EXPECT_NEAR(summarize(run_of({record})).empty_slots, 0.5, 1e-12);
  record.texts["options"] = "no JSON";
  EXPECT_TRUE(std::isnan(summarize(run_of({record})).empty_slots));
  EXPECT_EQ(summarize(run_of({record})).find("empty_slots"), nullptr);
}

TEST(Summary, ARowOfSeveralStepsHasTheBlocksOfTheLast) {
  Record record = empty_record();
  record.texts["options"] = R"({"in_force": {"block_size": 10}})";
  for (const auto& [weight, tokens] : {std::pair(1U, uint64_t{10}), {3U, uint64_t{20}}}) {
    StepRow row = step(0, 0, 1, weight);
    row.held_blocks = 2;
    row.kv_tokens = tokens;
    add_row(record, TableId::steps, row);
  }
  EXPECT_NEAR(summarize(run_of({record})).empty_slots, 1 - 70.0 / 80, 1e-12);
}

TEST(Summary, OfStepsThatEndBeforeTheJobCountsTheRequests) {
  Record record = made_job({.seconds = 10, .node_joules = {100, 100}});
  EXPECT_THAT(summary_text(run_of({record}), summarize(run_of({record}))), Not(HasSubstr("--record-limit")));
  RequestRow last = request(100'000, 0.1, 0.05);
  last.done_s = 50;
  add_row(record, TableId::requests, last);
  record.texts["steps_until_s"] = "10.0";
  const RecordedRun run = run_of({record});
  const Summary summary = summarize(run);
  EXPECT_EQ(summary.output_tokens, 100'000U + 20 * 21);
  EXPECT_NEAR(summary.seconds, 50, 1e-9);
  EXPECT_NEAR(summary.joules_per_token(), 200 / (200 * 27.0), 1e-12) << "both of 10 s";
  EXPECT_THAT(summary_text(run, summary), HasSubstr("job 1: steps and heartbeats reach to 10.0 s"));
  EXPECT_NEAR(json::parse(summary_json(run, summary))["jobs"][0]["steps_to_s"].get<double>(), 10, 1e-9);
}

TEST(Summary, EnergyATokenNeedsTheCounterOfEveryNode) {
  const RecordedRun all = run_of({made_job({.node_joules = {1000, 1160}})});
  EXPECT_NEAR(summarize(all).joules_per_token(), 2160 / 21600.0, 1e-12);
  EXPECT_THAT(summary_text(all, summarize(all)), HasSubstr("2160 J, 0.1 J a token"));
  const RecordedRun one = run_of({made_job({.node_joules = {not_recorded, 1160}})});
  EXPECT_TRUE(std::isnan(summarize(one).joules_per_token()));
  EXPECT_THAT(summary_text(one, summarize(one)), HasSubstr("readable on 1 of 2 nodes"));
  EXPECT_TRUE(json::parse(summary_json(one, summarize(one)))["energy"]["joules"].is_null());
  const RecordedRun none = run_of({made_job({})});
  EXPECT_THAT(summary_text(none, summarize(none)), HasSubstr("not readable on any node"));
}

TEST(Summary, OfAJobThatDidNotEndTakesTheLastHeartbeats) {
  const RecordedRun run = run_of({made_job({.complete = false})});
  const Summary summary = summarize(run);
  ASSERT_EQ(summary.ranks.size(), 4U);
  EXPECT_NEAR(summary.ranks[1].decode_s, 0.9 * 40.01, 1e-9);
  EXPECT_EQ(summary.ranks[3].host, "n2");
  const std::string text = summary_text(run, summary);
  EXPECT_THAT(text, HasSubstr("job 1 did not end: read as far as it goes, to 40.0 s"));
  EXPECT_THAT(summary_text(run_of({made_job({})}), summary), Not(HasSubstr("did not end")));
}

TEST(Summary, ForPeopleNamesRanksModelAndPhases) {
  const RecordedRun run = run_of({made_job({})});
  const std::string text = summary_text(run, summarize(run));
  for (const char* part :
       {"r: generate, 4 ranks on 2 nodes (tp 2, dp 2), bf16, repro batch; maniple 0.1.0 git 1a2b3c4\n",
        "models/m (aaaa)", "20, 0 failed", "25.0 % of the held slots had no token",
        "load 4.00 s (max/mean 1.60)", "scratch 30 MiB (max/mean 2.00)", "6 repeats"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(Summary, InJsonHasTheKeysOfVllmAndNullForTheUnknown) {
  const RecordedRun run = run_of({made_job({})});
  const json object = json::parse(summary_json(run, summarize(run)));
  EXPECT_EQ(object["num_requests"], 20);
  EXPECT_EQ(object["total_input_tokens"], 2000);
  EXPECT_NEAR(object["output_throughput"].get<double>(), 540, 1e-6);
  EXPECT_NEAR(object["median_tpot_ms"].get<double>(), 50, 1e-6);
  EXPECT_EQ(object["metrics"]["out_tok_per_s"]["n"], 6);
  EXPECT_EQ(object["metrics"]["out_tok_per_s"]["low"], 250);
  EXPECT_TRUE(object["energy"]["joules_per_token"].is_null());
  EXPECT_TRUE(object["jobs"][0]["complete"]);
}

TEST(Summary, OfNoRowsIsThereAllTheSame) {
  const RecordedRun run = run_of({empty_record()});
  const Summary summary = summarize(run);
  EXPECT_TRUE(summary.metrics.empty());
  EXPECT_THAT(summary_text(run, summary), HasSubstr("r"));
  EXPECT_TRUE(json::parse(summary_json(run, summary))["output_throughput"].is_null());
}

}  // namespace
}  // namespace maniple
