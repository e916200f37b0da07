#include <gtest/gtest.h>

#include <kernels/support/check.hpp>
#include <runtime/scheduling/sequence_table.hpp>

#include "scheduling_helpers.hpp"

namespace maniple {
namespace {

constexpr uint32_t seats = 4, blocks = 10, block_size = 16;

uint64_t state_of(Seat seat, uint32_t past_length, std::initializer_list<int32_t> ids) {
  BlockTable table;
  for (const int32_t id : ids) table.append(id);
  return fold_state(0, seat, past_length, table);
}

// Seat 2 takes blocks 5 and 3, of which the first is cached, and computes eight tokens.
StepPlan first_plan() {
  StepPlan plan;
  plan.step = 1;
  plan.admissions = {
      {.seat = 2, .cached_length = 16, .sampling = {.temperature = 0.5F, .seed = 9}, .blocks = {5, 3}}};
  plan.sequences = {{.seat = 2, .query_length = 8, .known = 8, .rows_sampled = 1}};
  plan.known_tokens = counting(100, 8);
  plan.state_hash = state_of(2, 16, {5, 3});
  return plan;
}

std::string refusal(SequenceTable& table, const StepPlan& plan) {
  try {
    table.apply(plan);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::fault);
    return error.what();
  }
  return "accepted";
}

std::string refusal_of_first(auto change) {
  SequenceTable table(seats, blocks, block_size);
  StepPlan plan = first_plan();
  change(plan);
  return refusal(table, plan);
}

TEST(SequenceTable, DerivesLengthsAndBlocksFromThePlans) {
  SequenceTable table(seats, blocks, block_size);
  const StepPlan first = first_plan();
  const auto prompt = table.apply(first);
  ASSERT_EQ(prompt.size(), 1U);
  EXPECT_EQ(prompt[0].past_length, 16U);
  EXPECT_EQ(prompt[0].query_length, 8U);
  EXPECT_EQ(prompt[0].rows_sampled, 1U);
  EXPECT_EQ(std::vector<int32_t>(prompt[0].known_tokens.begin(), prompt[0].known_tokens.end()),
            counting(100, 8));
  EXPECT_EQ(prompt[0].sampling->seed, 9U);
  EXPECT_EQ(prompt[0].seen_blocks, 0U);

  for (uint32_t past = 24; past < 33; ++past) {
    StepPlan decode;
    decode.step = past - 22;
    if (past == 32) decode.new_blocks = {{2, {7}}};
    decode.sequences = {{.seat = 2, .query_length = 1, .known = 0, .rows_sampled = 1}};
    decode.state_hash = past == 32 ? state_of(2, past, {5, 3, 7}) : state_of(2, past, {5, 3});
    const auto views = table.apply(decode);
    ASSERT_EQ(views.size(), 1U);
    EXPECT_EQ(views[0].past_length, past);
    EXPECT_TRUE(views[0].known_tokens.empty());
    EXPECT_EQ(views[0].blocks.size(), past == 32 ? 3U : 2U);
    EXPECT_EQ(views[0].seen_blocks, 2U);
  }
}

// Seat 2 with blocks 5 and 3: `query` tokens from `past`, all but the last known.
StepPlan again(uint64_t step, uint32_t past, uint32_t query, uint32_t rows) {
  StepPlan plan;
  plan.step = step;
  plan.sequences = {
      {.seat = 2, .past_length = past, .query_length = query, .known = query - 1, .rows_sampled = rows}};
  plan.known_tokens = counting(1, query - 1);
  plan.state_hash = state_of(2, past, {5, 3});
  return plan;
}

TEST(SequenceTable, AQueryMayBeginBeforeWhatTheMirrorHasAndMixKnownTokensWithTheLast) {
  SequenceTable table(seats, blocks, block_size);
  table.apply(first_plan());
  const StepPlan plan = again(2, 17, 5, 3);
  const auto views = table.apply(plan);
  EXPECT_EQ(views[0].past_length, 17U);
  EXPECT_EQ(views[0].query_length, 5U);
  EXPECT_EQ(views[0].rows_sampled, 3U);
  EXPECT_EQ(std::vector<int32_t>(views[0].known_tokens.begin(), views[0].known_tokens.end()), counting(1, 4));
  // The mirror follows the plan back to 22 tokens, though it had 24.
  StepPlan decode = again(3, 22, 1, 1);
  decode.sequences[0].past_length.reset();
  EXPECT_EQ(table.apply(decode)[0].past_length, 22U);
  EXPECT_EQ(table.apply(again(4, 23, 1, 0))[0].past_length, 23U);  // said although it is expected
  EXPECT_EQ(refusal(table, again(5, 25, 1, 1)),
            "rank state drifted: seat 2 goes on after 25 tokens and has 24");
}

TEST(SequenceTable, TheStateIsThatOfWhereTheQueryBegins) {
  SequenceTable table(seats, blocks, block_size);
  table.apply(first_plan());
  StepPlan plan = again(2, 17, 5, 3);
  plan.state_hash = state_of(2, 24, {5, 3});
  EXPECT_TRUE(refusal(table, plan).starts_with("rank state drifted: plan 2 assumes other lengths or blocks"));
}

TEST(SequenceTable, AStepSamplesNoMoreRowsThanThereAreSeats) {
  SequenceTable table(seats, blocks, block_size);
  table.apply(first_plan());
  EXPECT_EQ(table.apply(again(2, 17, 7, 4))[0].rows_sampled, 4U);
  EXPECT_EQ(refusal(table, again(3, 17, 7, 5)), "rank state drifted: plan 3 has 5 rows, and 4 is the most");
}

TEST(SequenceTable, ASeatReleasedInAPlanCanBeTakenInTheSamePlan) {
  SequenceTable table(seats, blocks, block_size);
  table.apply(first_plan());
  StepPlan second = first_plan();
  second.step = 2;
  second.released = {2};
  EXPECT_EQ(table.apply(second)[0].seen_blocks, 0U);
}

TEST(SequenceTable, FollowsAPlanWithoutSequences) {
  SequenceTable table(seats, blocks, block_size);
  StepPlan stop;
  stop.step = 1;
  stop.command = Command::stop;
  EXPECT_TRUE(table.apply(stop).empty());
}

TEST(SequenceTable, APlanThatDoesNotFitWhatThisRankKnowsIsAFault) {
  const std::string drifted = "rank state drifted: ";
  EXPECT_EQ(refusal_of_first([](auto&) {}), "accepted");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.step = 2; }), drifted + "plan 2 follows plan 0");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.released = {1}; }), drifted + "seat 1 of 4 is not taken");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.released = {4}; }), drifted + "seat 4 of 4 is not taken");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.admissions[0].seat = 4; }), drifted + "seat 4 of 4 is not free");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.admissions.push_back(p.admissions[0]); }),
            drifted + "seat 2 of 4 is not free");
  EXPECT_EQ(refusal_of_first([](auto& p) {
              p.admissions[0].blocks = {5, 10};
            }),
            drifted + "block 10 is not one of 10");
  EXPECT_EQ(refusal_of_first([](auto& p) {
              p.admissions[0].blocks = {5, -1};
            }),
            drifted + "block -1 is not one of 10");
  EXPECT_EQ(refusal_of_first([](auto& p) {
              p.new_blocks = {{0, {1}}};
            }),
            drifted + "seat 0 of 4 is not taken");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.sequences[0].seat = 1; }), drifted + "seat 1 of 4 is not taken");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.known_tokens.pop_back(); }),
            drifted + "seat 2 computes 8 tokens, 8 of them known, and the plan holds 7");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.known_tokens.push_back(1); }),
            drifted + "1 tokens of plan 1 belong to no sequence");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.sequences[0].known = 6; }),
            drifted + "seat 2 computes 8 tokens, 6 of them known, and the plan holds 8");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.sequences[0].known = 9; }),
            drifted + "seat 2 computes 8 tokens, 9 of them known, and the plan holds 8");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.sequences[0].known = UINT32_MAX; }),
            drifted + "seat 2 computes 8 tokens, 4294967295 of them known, and the plan holds 8");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.sequences[0].rows_sampled = 9; }),
            drifted + "seat 2 computes 8 tokens and samples 9");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.sequences[0].past_length = 17; }),
            drifted + "seat 2 goes on after 17 tokens and has 16");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.sequences.push_back(p.sequences[0]); }),
            drifted + "plan 1 computes seat 2 twice");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.sequences[0].query_length = 17; }),
            drifted + "seat 2 computes 17 tokens after 16 and has 2 blocks of 16");
  EXPECT_EQ(refusal_of_first([](auto& p) { p.sequences[0].query_length = UINT32_MAX; }),
            drifted + "seat 2 computes 4294967295 tokens after 16 and has 2 blocks of 16");
  EXPECT_NE(refusal_of_first([](auto& p) { p.sequences[0].query_length = 0; }), "accepted");
}

TEST(SequenceTable, AnotherLengthOrOrderOfBlocksIsSeenInTheState) {
  const auto drifts = [](auto change) {
    return refusal_of_first(change).starts_with("rank state drifted: plan 1 assumes other lengths or blocks");
  };
  EXPECT_TRUE(drifts([](auto& p) { p.admissions[0].cached_length = 15; }));
  EXPECT_TRUE(drifts([](auto& p) { p.admissions[0].blocks = {3, 5}; }));
  EXPECT_TRUE(drifts([](auto& p) { p.admissions[0].blocks = {5, 4}; }));
  EXPECT_TRUE(drifts([](auto& p) { p.new_blocks = {{2, {6}}}; }));
  EXPECT_TRUE(drifts([](auto& p) { p.state_hash ^= 1; }));
}

// Of 20 tokens; the first block is left of the window of token 40.
TEST(SequenceTable, HasTheBlocksOfWindowsToo) {
  const auto refused = [](std::vector<int32_t> windows, auto change) {
    SequenceTable table(seats, blocks, block_size, false, 0, {4, 20});
    BlockTable all, of_windows;
    StepPlan plan;
    plan.step = 1;
    plan.admissions = {
        {.seat = 1, .cached_length = 40, .sampling = {}, .blocks = {5, 3, 2}, .window_blocks = windows}};
    plan.sequences = {{.seat = 1, .query_length = 8, .known = 8, .rows_sampled = 1}};
    plan.known_tokens = counting(100, 8);
    for (const int32_t block : plan.admissions[0].blocks) all.append(block);
    for (const int32_t block : windows) of_windows.append(block);
    plan.state_hash = fold_state(0, 1, 40, all, of_windows);
    change(plan);
    return refusal(table, plan);
  };
  const auto as_it_is = [](auto&) {};
  const std::string drifted = "rank state drifted: ";
  EXPECT_EQ(refused({-1, 3, 0}, as_it_is), "accepted");
  EXPECT_EQ(refused({-1, 3, -1}, as_it_is), drifted + "block -1 is not one of 4");
  EXPECT_EQ(refused({-1, 3, 4}, as_it_is), drifted + "block 4 is not one of 4");
  const std::string lacks = drifted + "seat 1 computes 8 tokens after 40 and has ";
  EXPECT_EQ(refused({-1, 3}, as_it_is), lacks + "2 window blocks of 16, or not the first that it sees");
  EXPECT_EQ(refused({-1, -1, 0}, as_it_is), lacks + "3 window blocks of 16, or not the first that it sees");
  EXPECT_EQ(refused({-1, 3, 0},
                    [](auto& p) {
                      p.window_copies = {{0, 4}};
                    }),
            drifted + "block 4 is not one of 4");
  EXPECT_NE(refused({-1, 3, 0}, [](auto& p) { p.admissions[0].window_blocks = {-1, 2, 0}; }), "accepted");
  EXPECT_EQ(refused({-1, 3},
                    [](auto& p) {
                      p.new_window_blocks = {{1, {0}}};
                      BlockTable all, windows;
                      for (const int32_t block : {5, 3, 2}) all.append(block);
                      for (const int32_t block : {-1, 3, 0}) windows.append(block);
                      p.state_hash = fold_state(0, 1, 40, all, windows);
                    }),
            "accepted");
}

TEST(SequenceTable, OfAPipelineRefusesAPlanThatLeavesATokenOut) {
  SequenceTable table(seats, blocks, block_size, /*tokens_in_plan=*/true);
  table.apply(first_plan());
  StepPlan decode;
  decode.step = 2;
  decode.sequences = {{.seat = 2, .query_length = 1, .known = 0, .rows_sampled = 1}};
  EXPECT_THROW(table.apply(decode), Error);
}

}  // namespace
}  // namespace maniple
