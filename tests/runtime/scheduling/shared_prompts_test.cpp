// Several answers to a request, and scores of prompts: what is computed once, what is copied, and in which order.
#include <gtest/gtest.h>
#include <runtime/scheduling/scheduler.hpp>

#include "scheduling_helpers.hpp"

namespace maniple {
namespace {

using Lengths = std::vector<uint32_t>;
constexpr uint32_t page = 16, pages = 1000;

SchedulerConfig sharing(bool prefix_cache) {
  return {.max_num_seqs = 16,
          .max_num_batched_tokens = 1024,
          .max_rows = 64,
          .max_model_len = 4096,
          .block_size = page,
          .num_blocks = pages,
          .prefix_cache = prefix_cache,
          .eos_token_ids = {2}};
}

GenerationRequest answers(RequestId id, size_t prompt_length, uint32_t n) {
  GenerationRequest wanted = request(id, prompt_length, 8);
  wanted.sampling.n = n;
  return wanted;
}

// A prompt of `length` tokens that others of this stem have too, and a continuation of its own.
GenerationRequest continuation(RequestId id, size_t length, size_t tokens = 1) {
  GenerationRequest wanted = request(7, length, 0);
  wanted.id = id;
  wanted.prompt = joined(wanted.prompt, counting(static_cast<int32_t>(id) * 1000, tokens));
  wanted.sampling.prompt_logprobs = 0;
  wanted.score_from = static_cast<uint32_t>(length);
  return wanted;
}

struct Played {
  Lengths lengths;
  size_t copies;
  std::vector<TokenEvent> events;
};

Played play(Scheduler& scheduler) {
  const std::optional<StepPlan> plan = scheduler.schedule();
  EXPECT_TRUE(plan);
  if (!plan) return {};
  Played played{query_lengths(*plan), plan->copies.size(), scheduler.commit(answer(*plan))};
  Inspector::check_integrity(scheduler);
  return played;
}

TEST(SharedPrompts, APromptIsComputedOnceAndItsFullBlocksAreHeldOnce) {
  for (const bool prefix_cache : {true, false})
    for (const uint32_t prompt : {40U, 48U, 17U, 3U}) {
      SCOPED_TRACE(prompt);
      Scheduler scheduler(sharing(prefix_cache));
      ASSERT_FALSE(scheduler.add(answers(1, prompt, 8)));
      EXPECT_EQ(play(scheduler).lengths, Lengths{prompt});
      const uint32_t full = prompt / page, part = prompt % page > 0 ? 1 : 0;
      const Played forks = play(scheduler);
      EXPECT_EQ(forks.lengths, Lengths(8, 1)) << "the first goes on, the others compute the last token again";
      EXPECT_EQ(forks.copies, 7 * part);
      const uint32_t first_grew = prompt % page == 0 ? 1 : 0;
      EXPECT_EQ(scheduler.kv_use().held_blocks, full + 8 * part + first_grew);
      for (uint32_t index = 1; index < 8; ++index)
        for (uint32_t block = 0; block < full; ++block)
          EXPECT_EQ(scheduler.find(1, index)->blocks[block], scheduler.find(1)->blocks[block]);
      while (scheduler.has_work()) play(scheduler);
      EXPECT_EQ(scheduler.counts().free_blocks, pages);
    }
}

TEST(SharedPrompts, MoreAnswersThanSeatsStartLaterAndOthersNeedNotWait) {
  Scheduler scheduler(sharing(false));
  ASSERT_FALSE(scheduler.add(answers(1, 100, 40)));
  ASSERT_FALSE(scheduler.add(request(2, 30, 1)));
  EXPECT_EQ(play(scheduler).lengths, (Lengths{100, 30})) << "the next request takes the room of what waits";
  EXPECT_EQ(play(scheduler).lengths, Lengths(16, 1));
  size_t ended = 0, computed = 0;
  while (scheduler.has_work()) {
    const Played next = play(scheduler);
    computed += std::accumulate(next.lengths.begin(), next.lengths.end(), 0U);
    for (const TokenEvent& event : next.events) ended += event.finish_reason != FinishReason::none ? 1 : 0;
  }
  EXPECT_EQ(ended, 40U);
  EXPECT_LT(computed, 40 * 8 + 3 * 100) << "what starts later finds the prompt of those that ended";
}

TEST(SharedPrompts, AnswersHaveTheSeedsOfSingleRequestsAndEndOneByOne) {
  Scheduler scheduler(sharing(true));
  GenerationRequest wanted = answers(1, 5, 3);
  wanted.sampling.seed = 77;
  ASSERT_FALSE(scheduler.add(wanted));
  for (uint32_t index = 0; index < 3; ++index)
    EXPECT_EQ(scheduler.find(1, index)->sampling.seed, answer_seed(77, index));
  EXPECT_EQ(answer_seed(77, 0), 77U);
  EXPECT_NE(answer_seed(77, 2), answer_seed(78, 1)) << "of the next request";
  play(scheduler);
  play(scheduler);
  EXPECT_EQ(scheduler.finish(1, FinishReason::stop, 1), 1U);
  EXPECT_EQ(play(scheduler).lengths, (Lengths{1, 1}));
  EXPECT_EQ(scheduler.finish(1, FinishReason::abort), 2U);
  EXPECT_FALSE(scheduler.has_work());
}

TEST(SharedPrompts, ContinuationsOfOnePromptComputeItOnce) {
  for (const bool prefix_cache : {true, false}) {
    Scheduler scheduler(sharing(prefix_cache));
    for (RequestId id = 0; id < 4; ++id) ASSERT_FALSE(scheduler.add(continuation(id, 200, 3)));
    ASSERT_FALSE(scheduler.add(request(50, 30, 1)));
    EXPECT_EQ(play(scheduler).lengths, (Lengths{202, 30})) << "the last token is no input";
    const Played others = play(scheduler);
    EXPECT_EQ(others.lengths, (Lengths{3, 3, 3}));
    EXPECT_EQ(others.copies, 3U) << "of the block that the prompt does not fill";
    ASSERT_EQ(others.events.size(), 3U * 4);
    EXPECT_EQ(others.events[2].kind, TokenEvent::Kind::score);
    EXPECT_EQ(others.events[2].token, 1002);
    EXPECT_EQ(others.events[2].position, 202U);
    EXPECT_EQ(others.events[3].kind, TokenEvent::Kind::end);
    EXPECT_EQ(others.events[3].finish_reason, FinishReason::length);
    EXPECT_EQ(scheduler.counts().free_blocks, pages);
  }
}

TEST(SharedPrompts, AStepScoresNoMoreRowsThanItHas) {
  Scheduler scheduler(sharing(true));
  ASSERT_FALSE(scheduler.add(request(1, 10, 100)));
  play(scheduler);
  GenerationRequest scored = request(2, 200, 1);
  scored.sampling.prompt_logprobs = 3;
  ASSERT_FALSE(scheduler.add(scored));
  EXPECT_EQ(play(scheduler).lengths, (Lengths{1, 63})) << "one of the 64 is the other's";
  EXPECT_EQ(play(scheduler).lengths, (Lengths{1, 63}));
  EXPECT_EQ(play(scheduler).lengths, (Lengths{1, 63}));
  EXPECT_EQ(play(scheduler).lengths, (Lengths{1, 11})) << "10 scores and a token";
}

TEST(SharedPrompts, ScoresTakeFromTheCacheWhatLiesBeforeTheirFirstRow) {
  Scheduler scheduler(sharing(true));
  ASSERT_FALSE(scheduler.add(request(7, 64, 1)));
  play(scheduler);
  ASSERT_FALSE(scheduler.add(continuation(1, 40, 24)));
  EXPECT_EQ(play(scheduler).lengths, Lengths{63 - 32})
      << "from the block of the row before the first scored token on";
}

TEST(SharedPrompts, WithThePrefixCacheOffOtherRequestsFindNothing) {
  Scheduler scheduler(sharing(false));
  ASSERT_FALSE(scheduler.add(answers(1, 64, 2)));
  play(scheduler);
  play(scheduler);
  EXPECT_EQ(scheduler.counts().cached_tokens, 64U) << "of the second answer";
  GenerationRequest same = request(1, 64, 1);
  same.id = 2;
  ASSERT_FALSE(scheduler.add(same));
  EXPECT_EQ(play(scheduler).lengths, (Lengths{1, 1, 64}));
  EXPECT_EQ(scheduler.counts().cached_tokens, 64U);
}

TEST(SharedPrompts, APromptOfOneTokenAndNothingToGenerateTakesAStep) {
  Scheduler scheduler(sharing(true));
  ASSERT_FALSE(scheduler.add(request(1, 1, 0)));
  const Played only = play(scheduler);
  ASSERT_EQ(only.events.size(), 1U);
  EXPECT_EQ(only.events[0].kind, TokenEvent::Kind::end);
  EXPECT_FALSE(scheduler.has_work());
}

TEST(SharedPrompts, TheLastScoredTokenNeedsNoPlaceInTheContext) {
  Scheduler scheduler(sharing(true));
  EXPECT_FALSE(scheduler.add(continuation(1, 4096, 1)));
  EXPECT_TRUE(scheduler.add(continuation(2, 4096, 2)));
  GenerationRequest from_nowhere = continuation(3, 10, 1);
  from_nowhere.score_from = 0;
  EXPECT_TRUE(scheduler.add(from_nowhere));
  while (scheduler.has_work()) play(scheduler);
}

}  // namespace
}  // namespace maniple
