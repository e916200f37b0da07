#include <gtest/gtest.h>
#include <kernels/support/check.hpp>
#include <runtime/scheduling/scheduler.hpp>

#include <map>

#include "scheduling_helpers.hpp"

namespace maniple {
namespace {

using Lengths = std::vector<uint32_t>;

SchedulerConfig config(uint32_t budget = 1024, uint32_t num_blocks = 10000, uint32_t block_size = 16) {
  return {.max_num_seqs = 16,
          .max_num_batched_tokens = budget,
          .max_model_len = 32768,
          .block_size = block_size,
          .num_blocks = num_blocks,
          .eos_token_ids = {2, 7}};
}

SchedulerConfig prefill_first(SchedulerConfig base) {
  base.policy = Policy::prefill_first;
  return base;
}

SchedulerConfig in_flight(uint32_t steps, SchedulerConfig base) {
  base.steps_in_flight = steps;
  return base;
}

void add(Scheduler& scheduler, GenerationRequest wanted) {
  const auto rejection = scheduler.add(std::move(wanted));
  ASSERT_FALSE(rejection) << rejection->reason;
}

StepPlan next(Scheduler& scheduler) {
  auto plan = scheduler.schedule();
  EXPECT_TRUE(plan);
  return plan.value_or(StepPlan{});
}

// One step, committed before the next; the query lengths in batch order.
Lengths step(Scheduler& scheduler, int32_t token = 42) {
  const StepPlan plan = next(scheduler);
  scheduler.commit(answer(plan, token));
  Inspector::check_integrity(scheduler);
  return query_lengths(plan);
}

std::map<RequestId, FinishReason> run_to_end(Scheduler& scheduler, int32_t token = 42) {
  std::map<RequestId, FinishReason> ends;
  for (int steps = 0; scheduler.has_work() && steps < 100000; ++steps)
    for (const TokenEvent& event : scheduler.commit(answer(next(scheduler), token)))
      if (event.finish_reason != FinishReason::none) ends[event.request] = event.finish_reason;
  EXPECT_FALSE(scheduler.has_work());
  return ends;
}

void expect_all_free(const Scheduler& scheduler, uint32_t num_blocks) {
  const SchedulerCounts counts = scheduler.counts();
  EXPECT_EQ(counts.waiting, 0U);
  EXPECT_EQ(counts.running, 0U);
  EXPECT_EQ(counts.free_blocks, num_blocks);
  EXPECT_FALSE(scheduler.has_work());
  Inspector::check_integrity(scheduler);
}

TEST(Scheduler, CountsWhatIsAddedAndFinished) {
  Scheduler scheduler(config());
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_FALSE(scheduler.schedule());
  for (RequestId id = 1; id <= 10; ++id) {
    add(scheduler, request(id, 10));
    EXPECT_EQ(scheduler.counts().waiting, id);
  }
  for (RequestId id = 1; id <= 10; ++id) {
    EXPECT_TRUE(scheduler.finish(id, FinishReason::abort));
    EXPECT_FALSE(scheduler.finish(id, FinishReason::abort));
    EXPECT_EQ(scheduler.counts().waiting, 10 - id);
    EXPECT_EQ(scheduler.find(id), nullptr);
  }
  expect_all_free(scheduler, 10000);
}

TEST(Scheduler, ARequestThatCanNeverBeServedIsRefusedWithTheNumbers) {
  SchedulerConfig small = config(1024, 4, 16);
  small.max_model_len = 100;
  Scheduler scheduler(small);
  const auto refusal = [&](GenerationRequest wanted) {
    const auto rejection = scheduler.add(std::move(wanted));
    return rejection ? rejection->reason : "accepted";
  };
  EXPECT_EQ(refusal(request(1, 0)), "the prompt is empty");
  EXPECT_EQ(refusal(request(1, 100)),
            "the prompt (100 tokens) and one token to generate exceed the maximum length (100)");
  EXPECT_EQ(refusal(request(1, 60, 6)),
            "66 tokens need 5 kv blocks of 16 and there are 4; lower max_tokens (6) or the prompt (60)");
  EXPECT_EQ(refusal(request(1, 60, 5)), "accepted");
  EXPECT_EQ(refusal(request(1, 60, 5)), "request 1 is being served already");
  EXPECT_EQ(scheduler.counts().waiting, 1U);
  EXPECT_EQ(run_to_end(scheduler), (std::map<RequestId, FinishReason>{{1, FinishReason::length}}));
  EXPECT_EQ(scheduler.counts().preemptions, 0U);
}

GenerationRequest open_ended(RequestId id, size_t prompt_length) {
  GenerationRequest made = request(id, prompt_length);
  made.sampling.open_ended = true;
  made.sampling.min_tokens = 100;  // more than max_tokens, which does not count
  return made;
}

TEST(Scheduler, AnOpenEndedRequestGoesOnToTheEndOfTheContextOrOfTheSmallestCache) {
  const auto ends = [](uint32_t max_model_len, uint32_t fewest_blocks, size_t prompt) {
    SchedulerConfig small = config(1024, 4, 16);
    small.max_model_len = max_model_len;
    small.fewest_blocks = fewest_blocks;
    Scheduler scheduler(small);
    add(scheduler, open_ended(1, prompt));
    size_t tokens = 0;
    while (scheduler.has_work()) tokens += scheduler.commit(answer(next(scheduler))).size();
    const SchedulerCounts counts = scheduler.counts();
    EXPECT_EQ(counts.clipped, 0U);
    return std::tuple(tokens, counts.ended_by_context, counts.ended_by_cache);
  };
  EXPECT_EQ(ends(50, 0, 10), std::tuple(40U, 1U, 0U));
  EXPECT_EQ(ends(100, 0, 10), std::tuple(55U, 0U, 1U)) << "the last token needs no cache slot";
  EXPECT_EQ(ends(100, 2, 10), std::tuple(23U, 0U, 1U));
  EXPECT_EQ(ends(100, 0, 64), std::tuple(1U, 0U, 1U));
}

TEST(Scheduler, AnOpenEndedRequestIsRefusedOnlyForItsPrompt) {
  SchedulerConfig small = config(1024, 4, 16);
  small.max_model_len = 100;
  Scheduler scheduler(small);
  const auto rejection = scheduler.add(open_ended(1, 65));
  ASSERT_TRUE(rejection);
  EXPECT_EQ(rejection->reason, "66 tokens need 5 kv blocks of 16 and there are 4; lower the prompt (65)");
}

TEST(Scheduler, CountsRequestsWhoseMaxTokensTheContextClipsAndThoseThatReachItsEnd) {
  SchedulerConfig small = config(1024, 10, 16);
  small.max_model_len = 30;
  Scheduler scheduler(small);
  add(scheduler, request(1, 10, 20));
  add(scheduler, request(2, 10, 21));
  GenerationRequest stopping = request(3, 10, 21);
  stopping.sampling.stop_token_ids = {42};
  add(scheduler, stopping);
  run_to_end(scheduler);
  EXPECT_EQ(scheduler.counts().clipped, 2U);
  EXPECT_EQ(scheduler.counts().ended_by_context, 1U);
  EXPECT_EQ(scheduler.counts().ended_by_cache, 0U);
}

TEST(Scheduler, AConfigurationThatCannotServeIsRefused) {
  SchedulerConfig starving = config();
  starving.max_num_batched_tokens = 15;
  EXPECT_THROW(Scheduler{starving}, Error);
  EXPECT_THROW(Scheduler{config(1024, 0)}, Error);
}

// vLLM's case has a cap of 400 on each prompt's chunk; without one, chunks are served in order and decodes
// come first.
TEST(Scheduler, MixedCutsPromptsToTheBudgetAndLetsDecodesGoFirst) {
  Scheduler scheduler(config(1024));
  for (RequestId id = 1; id <= 3; ++id) add(scheduler, request(id, 800));
  EXPECT_EQ(step(scheduler), (Lengths{800, 224}));
  EXPECT_EQ(step(scheduler), (Lengths{1, 576, 447}));
  EXPECT_EQ(step(scheduler), (Lengths{1, 1, 353}));
  EXPECT_EQ(step(scheduler), (Lengths{1, 1, 1}));
}

TEST(Scheduler, NobodySkipsAheadOfAPromptThatDoesNotFitTheBudget) {
  for (const Policy policy : {Policy::mixed, Policy::prefill_first}) {
    SchedulerConfig chosen = config(1024);
    chosen.policy = policy;
    Scheduler scheduler(chosen);
    for (const auto& [id, length] : {std::pair{1, 800}, {2, 800}, {3, 10}, {4, 10}})
      add(scheduler, request(static_cast<RequestId>(id), static_cast<size_t>(length)));
    EXPECT_EQ(step(scheduler), policy == Policy::mixed ? (Lengths{800, 224}) : (Lengths{800}));
  }
}

TEST(Scheduler, PrefillFirstCutsOnlyTheFirstPromptOfAStep) {
  Scheduler scheduler(prefill_first(config(16384, 1000, 256)));
  add(scheduler, request(1, 20000));
  add(scheduler, request(2, 100));
  EXPECT_EQ(step(scheduler), (Lengths{16384}));
  EXPECT_EQ(step(scheduler), (Lengths{3616, 100}));
  EXPECT_EQ(step(scheduler), (Lengths{1, 1}));
}

TEST(Scheduler, PrefillFirstLetsASecondPromptWaitUntilItFitsWhole) {
  Scheduler scheduler(prefill_first(config(16384, 1000, 256)));
  add(scheduler, request(1, 16000));
  add(scheduler, request(2, 1000));
  EXPECT_EQ(step(scheduler), (Lengths{16000}));
  EXPECT_EQ(step(scheduler), (Lengths{1000}));
  EXPECT_EQ(step(scheduler), (Lengths{1, 1}));
}

TEST(Scheduler, PrefillFirstFitsAPromptByWhatIsNotCached) {
  Scheduler scheduler(prefill_first(config(1024)));
  add(scheduler, request(1, 800));
  step(scheduler);
  GenerationRequest again = request(1, 1000);  // 800 of 1000 cached
  again.id = 2;
  add(scheduler, request(3, 700));
  add(scheduler, again);
  EXPECT_EQ(step(scheduler), (Lengths{700, 200}));
  EXPECT_EQ(scheduler.counts().cached_tokens, 800U);
}

TEST(Scheduler, AFullKvPreemptsTheNewestWhichKeepsItsTokenAndResumesFirst) {
  Scheduler scheduler(config(1024, 10, 16));
  add(scheduler, request(1, 80));
  add(scheduler, request(2, 80));
  EXPECT_EQ(step(scheduler), (Lengths{80, 80}));
  add(scheduler, request(3, 8));
  const StepPlan pressed = next(scheduler);  // the first needs a sixth block; no admission in such a step
  EXPECT_EQ(query_lengths(pressed), (Lengths{1}));
  EXPECT_EQ(pressed.released, (std::vector<Seat>{1}));
  EXPECT_EQ(scheduler.counts().preemptions, 1U);
  EXPECT_EQ(scheduler.find(2)->tokens.back(), 42);
  EXPECT_EQ(scheduler.find(2)->num_tokens(), 81U);
  EXPECT_EQ(scheduler.find(2)->num_computed, 0U);
  EXPECT_EQ(scheduler.find(2)->status, SequenceStatus::waiting);
  scheduler.commit(answer(pressed));
  scheduler.finish(1, FinishReason::abort);
  const StepPlan resumed = next(scheduler);
  EXPECT_EQ(query_lengths(resumed),
            (Lengths{17, 8}));  // its last block went to the first, the others are still cached
  ASSERT_EQ(resumed.admissions.size(), 2U);
  EXPECT_EQ(resumed.admissions[0].cached_length, 64U);
  EXPECT_EQ(resumed.known_tokens[16], 42);
  scheduler.commit(answer(resumed));
  const auto ends = run_to_end(scheduler);
  EXPECT_EQ(ends.at(2), FinishReason::length);
  expect_all_free(scheduler, 10);
}

// nano-vLLM's arithmetic, with either policy.
TEST(Scheduler, TheNewestPreemptsItselfAndIsComputedAgainFromTheCache) {
  for (const Policy policy : {Policy::prefill_first, Policy::mixed}) {
    SchedulerConfig chosen = config(16384, 5, 256);
    chosen.policy = policy;
    Scheduler scheduler(chosen);
    for (RequestId id = 1; id <= 3; ++id) add(scheduler, request(id, 200, 260));
    EXPECT_EQ(step(scheduler), (Lengths{200, 200, 200}));
    for (int n = 0; n < 56; ++n) EXPECT_EQ(step(scheduler), (Lengths{1, 1, 1}));
    EXPECT_EQ(scheduler.counts().preemptions, 0U);
    EXPECT_EQ(step(scheduler), (Lengths{1, 1}));
    EXPECT_EQ(scheduler.counts().preemptions, 1U);
    EXPECT_EQ(scheduler.find(3)->num_tokens(), 257U);
    while (scheduler.find(1)) EXPECT_EQ(step(scheduler), (Lengths{1, 1}));
    const StepPlan again = next(scheduler);
    ASSERT_EQ(again.admissions.size(), 1U);
    EXPECT_EQ(again.admissions[0].cached_length, 256U);
    EXPECT_EQ(query_lengths(again), (Lengths{1}));
    scheduler.commit(answer(again));
    EXPECT_EQ(scheduler.find(3)->num_completion_tokens(), 58U);
    run_to_end(scheduler);
    expect_all_free(scheduler, 5);
  }
}

TEST(Scheduler, TheOnlySequenceNeverLacksABlock) {
  Scheduler scheduler(config(1024, 4, 16));
  add(scheduler, request(1, 33, 32));  // 64 tokens in the cache, the 65th is never computed
  EXPECT_EQ(run_to_end(scheduler).at(1), FinishReason::length);
  EXPECT_EQ(scheduler.counts().preemptions, 0U);
}

FinishReason end_after(const SchedulerConfig& chosen, const SamplingParams& sampling,
                       const std::vector<int32_t>& tokens) {
  Scheduler scheduler(chosen);
  GenerationRequest wanted = request(1, 10);
  wanted.sampling = sampling;
  add(scheduler, wanted);
  FinishReason reason = FinishReason::none;
  for (const int32_t token : tokens) {
    EXPECT_EQ(reason, FinishReason::none) << "before " << token;
    const auto events = scheduler.commit(answer(next(scheduler), token));
    EXPECT_EQ(events.size(), 1U);
    EXPECT_EQ(events.at(0).token, token);
    reason = events.at(0).finish_reason;
  }
  EXPECT_EQ(scheduler.has_work(), reason == FinishReason::none);
  return reason;
}

TEST(Scheduler, ARequestEndsAtAnyEndOfSequenceTokenOrStopTokenOrItsLength) {
  const SamplingParams four{.max_tokens = 4, .stop_token_ids = {50, 60}};
  EXPECT_EQ(end_after(config(), four, {5, 2}), FinishReason::stop);
  EXPECT_EQ(end_after(config(), four, {7}), FinishReason::stop);
  EXPECT_EQ(end_after(config(), four, {5, 60}), FinishReason::stop);
  EXPECT_EQ(end_after(config(), four, {5, 5, 5}), FinishReason::none);
  EXPECT_EQ(end_after(config(), four, {5, 5, 5, 5}), FinishReason::length);
  EXPECT_EQ(end_after(config(), four, {5, 5, 5, 2}), FinishReason::stop);
}

TEST(Scheduler, IgnoreEosSparesStopTokensAndMinTokensDelaysBoth) {
  const SamplingParams ignoring{.max_tokens = 4, .ignore_eos = true, .stop_token_ids = {50}};
  EXPECT_EQ(end_after(config(), ignoring, {2, 7, 50}), FinishReason::stop);
  EXPECT_EQ(end_after(config(), ignoring, {2, 2, 2, 2}), FinishReason::length);
  const SamplingParams late{.max_tokens = 4, .min_tokens = 3, .stop_token_ids = {50}};
  EXPECT_EQ(end_after(config(), late, {2, 50, 5}), FinishReason::none);
  EXPECT_EQ(end_after(config(), late, {2, 50, 2}), FinishReason::stop);
  EXPECT_EQ(end_after(config(), late, {2, 50, 50}), FinishReason::stop);
}

TEST(Scheduler, TheMaximumLengthEndsARequestEvenBeforeMinTokens) {
  SchedulerConfig tight = config();
  tight.max_model_len = 12;
  EXPECT_EQ(end_after(tight, {.max_tokens = 50, .min_tokens = 40, .stop_token_ids = {}}, {5, 2}),
            FinishReason::length);
}

TEST(Scheduler, NoMoreRunAtOnceThanThereAreSeats) {
  SchedulerConfig two = config();
  two.max_num_seqs = 2;
  for (const Policy policy : {Policy::mixed, Policy::prefill_first}) {
    two.policy = policy;
    Scheduler scheduler(two);
    for (RequestId id = 1; id <= 5; ++id) add(scheduler, request(id, 10, static_cast<uint32_t>(id)));
    while (scheduler.has_work()) {
      const StepPlan plan = next(scheduler);
      EXPECT_LE(scheduler.counts().running, 2U);
      for (const SequenceStep& sequence : plan.sequences) EXPECT_LT(sequence.seat, 2U);
      scheduler.commit(answer(plan));
    }
    expect_all_free(scheduler, 10000);
  }
}

TEST(Scheduler, TwoEqualPromptsInOneStepAreBothComputedAndAThirdShares) {
  Scheduler scheduler(config());
  GenerationRequest same = request(1, 40);
  for (RequestId id = 1; id <= 2; ++id) {
    same.id = id;
    add(scheduler, same);
  }
  EXPECT_EQ(step(scheduler), (Lengths{40, 40}));
  same.id = 3;
  add(scheduler, same);
  EXPECT_EQ(step(scheduler), (Lengths{1, 1, 8}));
}

TEST(Scheduler, SequencesInFlightArePlannedOneTokenFurther) {
  Scheduler scheduler(in_flight(2, config()));
  add(scheduler, request(1, 10));
  const StepPlan first = next(scheduler);
  add(scheduler, request(2, 20));
  const StepPlan second = next(scheduler);
  EXPECT_EQ(second.sequences, (std::vector<SequenceStep>{{0, {}, 1, 0, 1}, {1, {}, 20, 20, 1}}));
  EXPECT_FALSE(scheduler.schedule());
  EXPECT_EQ(scheduler.commit(answer(first)).at(0).request, 1U);
  const StepPlan third = next(scheduler);
  EXPECT_EQ(query_lengths(third), (Lengths{1, 1}));
  EXPECT_EQ(scheduler.commit(answer(second)).size(), 2U);
  EXPECT_EQ(scheduler.commit(answer(third)).size(), 2U);
  EXPECT_EQ(scheduler.find(1)->num_completion_tokens(), 3U);
}

TEST(Scheduler, ASequenceWhoseLengthEndsItInFlightIsNotPlannedAgain) {
  SchedulerConfig chosen = in_flight(4, config());
  chosen.max_model_len = 12;
  Scheduler scheduler(chosen);
  add(scheduler, request(1, 4, 2));
  add(scheduler, request(2, 9, 16));
  EXPECT_EQ(query_lengths(next(scheduler)), (Lengths{4, 9}));
  EXPECT_EQ(query_lengths(next(scheduler)), (Lengths{1, 1}));
  EXPECT_EQ(query_lengths(next(scheduler)), (Lengths{1}));
  EXPECT_FALSE(scheduler.schedule());
}

// The extra token fills a block. Until the step is done no prefix
// lookup may find the block and no other sequence may write it.
TEST(Scheduler, ATokenAfterTheEndIsDroppedAndItsBlocksAreFreeAfterItsStep) {
  Scheduler scheduler(in_flight(2, config(1024, 2, 16)));
  add(scheduler, request(1, 15));
  const StepPlan last = next(scheduler), extra = next(scheduler);
  EXPECT_EQ(scheduler.commit(answer(last, 2)).at(0).finish_reason, FinishReason::stop);
  GenerationRequest same = request(1, 15);
  same.prompt.insert(same.prompt.end(), {2, 42});
  add(scheduler, same);
  EXPECT_FALSE(scheduler.schedule());
  EXPECT_TRUE(scheduler.commit(answer(extra)).empty());
  EXPECT_EQ(query_lengths(next(scheduler)), (Lengths{17}));
  EXPECT_EQ(scheduler.counts().cached_tokens, 0U);
}

TEST(Scheduler, PreemptionWaitsUntilNothingIsInFlight) {
  Scheduler scheduler(in_flight(2, config(1024, 6, 16)));
  for (RequestId id = 1; id <= 2; ++id) add(scheduler, request(id, 48));
  const StepPlan plan = next(scheduler);
  EXPECT_FALSE(scheduler.schedule());
  EXPECT_EQ(scheduler.counts().preemptions, 0U);
  scheduler.commit(answer(plan));
  EXPECT_EQ(query_lengths(next(scheduler)), (Lengths{1}));
  EXPECT_EQ(scheduler.find(2)->status, SequenceStatus::waiting);
  EXPECT_EQ(scheduler.counts().preemptions, 1U);
}

TEST(Scheduler, BlocksFreedWhileAPlanIsInFlightAreNotWrittenByTheNextPlan) {
  Scheduler scheduler(in_flight(2, config(1024, 2, 16)));
  add(scheduler, request(1, 20, 4));
  const StepPlan first = next(scheduler);
  add(scheduler, request(2, 20, 4));
  EXPECT_TRUE(scheduler.finish(1, FinishReason::abort));
  EXPECT_FALSE(scheduler.schedule());
  EXPECT_TRUE(scheduler.commit(answer(first)).empty());
  const StepPlan second = next(scheduler);
  EXPECT_EQ(second.released, (std::vector<Seat>{0}));
  EXPECT_EQ(query_lengths(second), (Lengths{20}));
}

TEST(Scheduler, AnAbortOfWaitingRunningChunkedAndFlyingRequestsFreesEverything) {
  SchedulerConfig chosen = config(64, 100, 16);
  chosen.max_num_seqs = 2;
  Scheduler scheduler(chosen);
  add(scheduler, request(1, 20));
  add(scheduler, request(2, 200));
  add(scheduler, request(3, 20));
  EXPECT_EQ(step(scheduler), (Lengths{20, 44}));
  const StepPlan flying = next(scheduler);  // 1 decodes, 2 is a chunk, 3 waits
  for (RequestId id = 1; id <= 3; ++id) EXPECT_TRUE(scheduler.finish(id, FinishReason::abort));
  EXPECT_TRUE(scheduler.has_work());
  EXPECT_TRUE(scheduler.commit(answer(flying)).empty());
  expect_all_free(scheduler, 100);
}

TEST(Scheduler, AnIdCanBeUsedAgainWhileTheResultOfItsAbortedRequestIsInFlight) {
  Scheduler scheduler(in_flight(2, config()));
  add(scheduler, request(1, 20));
  const StepPlan old = next(scheduler);
  scheduler.finish(1, FinishReason::abort);
  add(scheduler, request(1, 30));
  const StepPlan fresh = next(scheduler);
  EXPECT_EQ(query_lengths(fresh), (Lengths{30}));
  EXPECT_TRUE(scheduler.commit(answer(old)).empty());
  EXPECT_EQ(scheduler.commit(answer(fresh)).size(), 1U);
  EXPECT_EQ(scheduler.find(1)->num_tokens(), 31U);
}

TEST(Scheduler, AChunkThatDoesNotEndThePromptIsAnsweredWithoutAToken) {
  Scheduler scheduler(config(32));
  add(scheduler, request(1, 40));
  const StepPlan chunk = next(scheduler);
  EXPECT_EQ(chunk.sequences, (std::vector<SequenceStep>{{0, {}, 32, 32, 0}}));
  EXPECT_TRUE(scheduler.commit(answer(chunk)).empty());
  const StepPlan rest = next(scheduler);
  EXPECT_EQ(rest.sequences, (std::vector<SequenceStep>{{0, {}, 8, 8, 1}}));
  EXPECT_TRUE(rest.admissions.empty());
  scheduler.commit(answer(rest));
  const StepPlan decode = next(scheduler);
  EXPECT_EQ(decode.sequences, (std::vector<SequenceStep>{{0, {}, 1, 0, 1}}));
  EXPECT_TRUE(decode.known_tokens.empty());
}

TEST(Scheduler, AResultThatDoesNotAnswerTheOldestPlanIsAFault) {
  Scheduler scheduler(config());
  add(scheduler, request(1, 10));
  const StepPlan plan = next(scheduler);
  const auto refused = [&](auto change) {
    StepResult result = answer(plan);
    change(result);
    try {
      scheduler.commit(result);
    } catch (const Error& error) {
      return error.code() == ExitCode::fault;
    }
    return false;
  };
  EXPECT_TRUE(refused([](auto& r) { r.step = 2; }));
  EXPECT_TRUE(refused([](auto& r) { r.counts = {0}; }));
  EXPECT_TRUE(refused([](auto& r) { r.counts = {1, 0}; }));
  EXPECT_TRUE(refused([](auto& r) { r.tokens.clear(); }));
  EXPECT_TRUE(refused([](auto& r) { r.tokens.push_back({}); }));
  EXPECT_TRUE(refused([](auto& r) { r.tokens[0].alternatives = 1; }));
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto&) {}));  // twice
}

TEST(Scheduler, LogProbabilitiesReachTheEventOfTheirToken) {
  Scheduler scheduler(config());
  for (RequestId id = 1; id <= 2; ++id) add(scheduler, request(id, 10));
  const StepPlan plan = next(scheduler);
  const StepResult result{.step = plan.step,
                          .counts = {1, 1},
                          .tokens = {{5, -0.5F, 1}, {6, -0.25F, 2}},
                          .alternatives = {{8, -1.0F}, {9, -2.0F}, {10, -3.0F}},
                          .times = {}};
  const auto events = scheduler.commit(result);
  EXPECT_EQ(events.at(0).alternatives, (std::vector<TokenLogprob>{{8, -1.0F}}));
  EXPECT_EQ(events.at(1).logprob, -0.25F);
  EXPECT_EQ(events.at(1).alternatives, (std::vector<TokenLogprob>{{9, -2.0F}, {10, -3.0F}}));
}

TEST(Scheduler, CommandsAndPlansShareOneSequenceOfSteps) {
  SchedulerConfig third = config();
  third.replica = 3;
  Scheduler scheduler(third);
  add(scheduler, request(1, 10, 1));
  EXPECT_EQ(next(scheduler).step, 1U);
  const StepPlan stop = scheduler.command(Command::stop);
  EXPECT_EQ(stop.step, 2U);
  EXPECT_EQ(stop.command, Command::stop);
  EXPECT_EQ(stop.replica, 3U);
  EXPECT_TRUE(stop.sequences.empty());
}

// Python's random module: MT19937 by init_by_array, randint by rejection.
class PythonRandom {
 public:
  explicit PythonRandom(uint32_t key) {
    state_[0] = 19650218U;
    for (uint32_t i = 1; i < n; ++i) state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
    uint32_t i = 1;
    const auto advance = [&] {
      if (++i < n) return;
      state_[0] = state_[n - 1];
      i = 1;
    };
    for (uint32_t k = 0; k < n; ++k, advance())
      state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1664525U)) + key;
    for (uint32_t k = 1; k < n; ++k, advance())
      state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1566083941U)) - i;
    state_[0] = 0x80000000U;
  }

  uint32_t between(uint32_t low, uint32_t high) {
    const uint32_t width = high - low + 1;
    const int bits = std::bit_width(width);
    uint32_t drawn = next() >> (32 - bits);
    while (drawn >= width) drawn = next() >> (32 - bits);
    return low + drawn;
  }

 private:
  static constexpr uint32_t n = 624, m = 397;

  uint32_t next() {
    if (index_ == n) twist();
    uint32_t y = state_[index_++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    return y ^ (y >> 18);
  }

  void twist() {
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t y = (state_[i] & 0x80000000U) | (state_[(i + 1) % n] & 0x7fffffffU);
      state_[i] = state_[(i + m) % n] ^ (y >> 1) ^ ((y & 1) != 0 ? 0x9908b0dfU : 0);
    }
    index_ = 0;
  }

  uint32_t state_[n] = {};
  uint32_t index_ = n;
};

// nano-vLLM's bench.py.
std::vector<GenerationRequest> benchmark_requests() {
  PythonRandom random(0);
  std::vector<GenerationRequest> requests(256);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].id = i;
    requests[i].prompt.resize(random.between(100, 1024));
    for (int32_t& token : requests[i].prompt) token = static_cast<int32_t>(random.between(0, 10000));
  }
  for (GenerationRequest& wanted : requests) {
    wanted.sampling.max_tokens = random.between(100, 1024);
    wanted.sampling.ignore_eos = true;
  }
  return requests;
}

TEST(Scheduler, PrefillFirstPlansTheBenchmarkExactlyAsNanoVllmDoes) {
  auto requests = benchmark_requests();
  ASSERT_EQ(requests[0].prompt.size(), 964U);
  ASSERT_EQ(requests[0].prompt[0], 6311);
  ASSERT_EQ(requests[1].prompt.size(), 724U);
  ASSERT_EQ(requests[0].sampling.max_tokens, 845U);
  SchedulerConfig chosen = prefill_first(config(16384, 1024, 256));
  chosen.max_num_seqs = 512;
  chosen.max_model_len = 4096;
  Scheduler scheduler(chosen);
  for (GenerationRequest& wanted : requests) add(scheduler, std::move(wanted));

  std::vector<std::pair<size_t, uint32_t>> prefills;
  std::vector<size_t> decodes;
  size_t tokens = 0;
  while (scheduler.has_work()) {
    const StepPlan plan = next(scheduler);
    const Lengths lengths = query_lengths(plan);
    if (plan.known_tokens.empty())
      decodes.push_back(lengths.size());
    else
      prefills.emplace_back(lengths.size(), std::accumulate(lengths.begin(), lengths.end(), 0U));
    tokens += scheduler.commit(answer(plan)).size();
  }
  const std::vector<std::pair<size_t, uint32_t>> expected = {{31, 15705}, {30, 16364}, {28, 16114},
                                                             {26, 16130}, {30, 16314}, {30, 16167},
                                                             {31, 16047}, {29, 15817}, {21, 14169}};
  EXPECT_EQ(prefills, expected);
  ASSERT_EQ(decodes.size(), 1023U);
  EXPECT_EQ(decodes[199], 218U);
  EXPECT_EQ(decodes[399], 153U);
  EXPECT_EQ(tokens, 133966U);
  EXPECT_EQ(scheduler.counts().preemptions, 0U);
  expect_all_free(scheduler, 1024);
}

SchedulerConfig pipeline(uint32_t steps, SchedulerConfig base) {
  base.tokens_in_plan = true;
  return in_flight(steps, base);
}

TEST(SchedulerOfAPipeline, PutsEveryTokenIntoThePlanAndPlansNoSequenceWithOneOnItsWay) {
  Scheduler scheduler(pipeline(3, config()));
  add(scheduler, request(1, 5, 4));
  const StepPlan prompt = next(scheduler);
  EXPECT_EQ(prompt.known_tokens.size(), 5U);
  EXPECT_FALSE(scheduler.schedule());  // its token is not known yet
  scheduler.commit(answer(prompt, 42));
  const StepPlan decode = next(scheduler);
  EXPECT_EQ(decode.known_tokens, (std::vector<int32_t>{42}));
  EXPECT_EQ(decode.sequences[0].known, 1U);
  EXPECT_EQ(scheduler.prompt_tokens(), 0U);
  EXPECT_FALSE(scheduler.schedule());
}

TEST(SchedulerOfAPipeline, ChunksOfAPromptFollowEachOther) {
  Scheduler scheduler(pipeline(3, config(16)));
  add(scheduler, request(1, 40, 4));
  EXPECT_EQ(query_lengths(next(scheduler)), Lengths{16});
  EXPECT_EQ(query_lengths(next(scheduler)), Lengths{16});
  const StepPlan last = next(scheduler);
  EXPECT_EQ(query_lengths(last), Lengths{8});
  EXPECT_EQ(last.sequences[0].rows_sampled, 1U);
  EXPECT_FALSE(scheduler.schedule());
}

TEST(SchedulerOfAPipeline, SharesTheDecodesAmongTheStepsInFlight) {
  Scheduler scheduler(pipeline(3, config()));
  for (RequestId id = 1; id <= 10; ++id) add(scheduler, request(id, 3, 100));
  scheduler.commit(answer(next(scheduler), 42));
  std::vector<StepPlan> flying;
  for (const size_t share : {4U, 4U, 2U}) {
    flying.push_back(next(scheduler));
    EXPECT_EQ(flying.back().sequences.size(), share);
  }
  EXPECT_FALSE(scheduler.schedule());
  for (int round = 0; round < 20; ++round) {  // and so it goes on
    scheduler.commit(answer(flying.front(), 42));
    const size_t share = flying.front().sequences.size();
    flying.erase(flying.begin());
    flying.push_back(next(scheduler));
    EXPECT_EQ(flying.back().sequences.size(), share);
    Inspector::check_integrity(scheduler);
  }
}

TEST(SchedulerOfAPipeline, NeedsRoomForItsShareOfTheDecodesOnly) {
  SchedulerConfig small = pipeline(3, config(6));  // 16 sequences
  Scheduler scheduler(small);
  small.max_num_batched_tokens = 5;
  EXPECT_THROW(Scheduler{small}, Error);
}

}  // namespace
}  // namespace maniple
