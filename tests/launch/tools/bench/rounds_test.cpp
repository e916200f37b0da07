#include <launch/tools/bench/figures.hpp>
#include <launch/tools/bench/rounds.hpp>

#include <gmock/gmock.h>

#include <limits>

namespace maniple {
namespace {

using testing::ElementsAre;

constexpr double none = std::numeric_limits<double>::quiet_NaN();

Workload two_requests() {
  Workload workload;
  workload.vocabulary = 100;
  workload.requests = {{{1, 2}, 3}, {{4}, 1}};
  return workload;
}

struct Rows final : RunObserver {
  void step(const StepRow& row) override { steps.push_back(row.tokens); }
  void request(const RequestRow& row) override { requests.push_back(row.id); }
  std::vector<uint64_t> steps, requests;
};

FinishedRequest completion_of(RequestId id, size_t tokens) {
  FinishedRequest completion;
  completion.id = id;
  completion.answers.resize(1);
  completion.answers[0].tokens.resize(tokens);
  return completion;
}

TEST(Rounds, TheNextOneWaitsUntilTheOneBeforeHasEnded) {
  const Workload workload = two_requests();
  Rounds rounds(workload, {{.requests = 2, .counts = false}, {.requests = 1}}, nullptr);
  EXPECT_EQ(rounds.all(), 3u);
  EXPECT_TRUE(rounds.ready());
  const auto first = rounds.next(), second = rounds.next();
  ASSERT_TRUE(first && second);
  EXPECT_THAT(first->prompt, ElementsAre(1, 2));
  EXPECT_EQ(second->id, 1u);
  EXPECT_FALSE(rounds.ready());
  rounds.finished(completion_of(1, 1));
  EXPECT_FALSE(rounds.ready());
  rounds.finished(completion_of(0, 3));
  EXPECT_TRUE(rounds.ready());
  const auto third = rounds.next();
  ASSERT_TRUE(third);
  EXPECT_EQ(third->id, 2u);
  EXPECT_THAT(third->prompt, ElementsAre(2, 3));
  EXPECT_FALSE(rounds.ready());
  rounds.finished(completion_of(2, 3));
  EXPECT_EQ(rounds.done(), 3u);
  EXPECT_TRUE(rounds.ready());
  EXPECT_FALSE(rounds.next());
  EXPECT_GT(rounds.rounds()[0].seconds, 0);
  EXPECT_GT(rounds.rounds()[1].seconds, 0);
}

TEST(Rounds, OnlyRowsOfRoundsThatCountAreRecorded) {
  const Workload workload = two_requests();
  Rows rows;
  Rounds rounds(workload, {{.requests = 2, .counts = false}, {.requests = 2}}, &rows);
  for (uint64_t round = 0; round < 2; ++round) {
    for (uint64_t i = 0; i < 2; ++i) ASSERT_TRUE(rounds.next());
    rounds.step({.step = round, .tokens = 10 + round, .sampled = 2, .context = 3, .kv_tokens = 4});
    for (uint64_t i = 0; i < 2; ++i) {
      rounds.request({.id = 2 * round + i, .output = 1});
      rounds.finished(completion_of(2 * round + i, i == 0 ? 3 : 1));
    }
  }
  EXPECT_THAT(rows.steps, ElementsAre(11u));
  EXPECT_THAT(rows.requests, ElementsAre(0u, 1u));
  for (const Round& round : rounds.rounds()) {
    EXPECT_EQ(round.rows.size(), 2u);
    EXPECT_EQ(round.steps.steps, 1u);
    EXPECT_EQ(round.steps.sampled + round.steps.context + round.steps.kv_tokens, 9u);
  }
}

TEST(Rounds, ARequestThatTheEngineRefusesEndsTheBench) {
  const Workload workload = two_requests();
  Rounds rounds(workload, {{.requests = 2}}, nullptr);
  rounds.next();
  FinishedRequest refused = completion_of(0, 0);
  refused.error = "the prompt does not fit";
  try {
    rounds.finished(refused);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::preflight);
    EXPECT_STREQ(error.what(), "request 1 of the workload is refused: the prompt does not fit");
  }
}

TEST(Rounds, AnOutputOfAnotherLengthIsNoMeasurement) {
  const Workload workload = two_requests();
  Rounds rounds(workload, {{.requests = 2}}, nullptr);
  rounds.next();
  EXPECT_THROW(rounds.finished(completion_of(0, 2)), Error);
}

TEST(Figures, AreThoseComputedByHand) {
  RequestRow slow{.prompt = 10, .output = 5, .first_s = 2, .done_s = 6, .ttft_s = 1, .tpot_s = 1};
  slow.itl_p50_s = 0.9, slow.itl_p99_s = 1.3, slow.e2e_s = 5;
  RequestRow fast{.prompt = 20, .output = 2, .first_s = 2, .done_s = 2.5, .ttft_s = 0.5, .tpot_s = 0.5};
  fast.itl_p50_s = fast.itl_p99_s = 0.5, fast.e2e_s = 2;
  RequestRow single{.prompt = 30, .output = 1, .first_s = 3, .done_s = 3, .ttft_s = 2, .tpot_s = none};
  single.itl_p50_s = single.itl_p99_s = none, single.e2e_s = 3;
  const Round round{.requests = 3, .seconds = 4, .rows = {slow, fast, single}};
  const std::vector<Figure> figures = figures_of(std::vector{round, round}, "_x");
  const auto value = [&](const std::string& name) { return find(figures, name + "_x").metric.values.at(1); };
  EXPECT_DOUBLE_EQ(value("out_tok_per_s"), 8.0 / 4);
  EXPECT_DOUBLE_EQ(value("total_tok_per_s"), 68.0 / 4);
  EXPECT_DOUBLE_EQ(value("req_per_s"), 3.0 / 4);
  EXPECT_DOUBLE_EQ(value("elapsed_s"), 4);
  EXPECT_DOUBLE_EQ(value("ttft_mean_ms"), 3500.0 / 3);
  EXPECT_DOUBLE_EQ(value("ttft_p50_ms"), 1000);
  EXPECT_DOUBLE_EQ(value("ttft_p99_ms"), 1980);  // 1000 + 0.98 x 1000
  EXPECT_DOUBLE_EQ(value("tpot_p50_ms"), 750);
  EXPECT_DOUBLE_EQ(value("itl_mean_ms"), 900);  // 4.5 s in 5 gaps
  EXPECT_DOUBLE_EQ(value("itl_p50_ms"), 700);
  EXPECT_DOUBLE_EQ(value("itl_p99_ms"), 900);
  EXPECT_DOUBLE_EQ(value("e2e_p50_ms"), 3000);
  EXPECT_EQ(find(figures, "e2e_p50_ms_x").key, "median_e2el_ms");
  EXPECT_EQ(find(figures, "out_tok_per_s_x").metric.unit, "tok/s");
}

}  // namespace
}  // namespace maniple
