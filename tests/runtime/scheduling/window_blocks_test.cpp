#include <gtest/gtest.h>
#include <runtime/scheduling/block_manager.hpp>

#include <memory>

#include "scheduling_helpers.hpp"

namespace maniple {
namespace {

using Ids = std::vector<int32_t>;

constexpr uint32_t block_tokens = 16;

// Of 20 tokens.
struct Manager : BlockManager {
  explicit Manager(uint32_t windows, uint32_t blocks = 12)
      : BlockManager(blocks, block_tokens, true, block_hash, {windows, 20}) {}

  // Admitted and computed, in chunks.
  std::unique_ptr<Sequence> served(Ids tokens, uint32_t chunk = 16) {
    auto sequence = std::make_unique<Sequence>();
    sequence->num_prompt_tokens = static_cast<uint32_t>(tokens.size());
    sequence->tokens = std::move(tokens);
    EXPECT_TRUE(admit(*sequence));
    while (sequence->num_computed < sequence->num_tokens()) {
      const uint32_t end = std::min(sequence->num_computed + chunk, sequence->num_tokens());
      EXPECT_EQ(cover(*sequence, end), end);
      sequence->num_computed = end;
      publish(*sequence);
      leave_behind(*sequence);
    }
    return sequence;
  }
  uint32_t cached(Ids tokens) const {
    Sequence sequence;
    sequence.tokens = std::move(tokens);
    return cached_length(sequence);
  }
};

Ids windows_of(const Sequence& sequence) {
  return {sequence.window_blocks.ids().begin(), sequence.window_blocks.ids().end()};
}

TEST(WindowPool, HasWhatAllSequencesAndAStepNeedAndNoMoreThanThereAreBlocks) {
  EXPECT_EQ(WindowPool::of(0, 256, 64, 8192, 1000).blocks, 0U);
  EXPECT_EQ(WindowPool::of(128, 256, 64, 8192, 1000).blocks, 64U * 4 + 32);
  EXPECT_EQ(WindowPool::of(128, 16, 64, 100, 10000).blocks, 64U * 11 + 7);
  EXPECT_EQ(WindowPool::of(128, 256, 64, 8192, 100).blocks, 100U);
}

TEST(WindowBlocks, AreHeldOnlyWhileAWindowSeesThem) {
  Manager manager(4);
  const auto sequence = manager.served(counting(0, 100));
  EXPECT_EQ(sequence->blocks.size(), 7U);
  EXPECT_EQ(sequence->window_blocks.size(), 7U);
  EXPECT_EQ(sequence->first_window_block, 5U)
      << "token 99 sees 80 to 99; one before it may be computed again";
  EXPECT_EQ(manager.window_pool().num_held(), 2U);
  EXPECT_EQ(manager.window_pool().num_free(), 2U);
  const Sequence* holders[] = {sequence.get()};
  Inspector::check_integrity(manager, holders);
}

TEST(WindowBlocks, OfAPoolThatIsUsedUpCoverLessThanWasAsked) {
  Manager manager(4);
  Sequence sequence;
  sequence.tokens = counting(0, 100);
  ASSERT_TRUE(manager.admit(sequence));
  EXPECT_EQ(windows_of(sequence).size(), 1U);
  EXPECT_EQ(manager.cover(sequence, 100), 64U);
  Sequence other;
  other.tokens = counting(1000, 5);
  EXPECT_FALSE(manager.admit(other)) << "no window block is left for its first token";
  EXPECT_EQ(other.blocks.size(), 0U);
  manager.release(sequence, 3);
  EXPECT_EQ(manager.window_pool().num_pending(), 4U);
  EXPECT_FALSE(manager.admit(other));
  manager.answered(3);
  EXPECT_TRUE(manager.admit(other));
}

TEST(WindowBlocks, APrefixCountsOnlyWithWhatTheNextTokensWindowSees) {
  Manager manager(8);
  const Ids prompt = counting(0, 100);
  auto first = manager.served(prompt);
  EXPECT_EQ(manager.cached(joined(prompt, {7})), 96U);
  EXPECT_EQ(manager.cached(counting(0, 40)), 32U) << "given back, and not yet used for others";
  manager.release(*first, 0);
  auto second = manager.served(counting(1000, 60), 60);  // takes four window blocks, two of them the oldest
  EXPECT_EQ(manager.cached(counting(0, 40)), 0U);
  EXPECT_EQ(manager.cached(joined(prompt, {7})), 96U);
  Sequence again;
  again.tokens = joined(prompt, {7});
  ASSERT_TRUE(manager.admit(again));
  EXPECT_EQ(again.num_computed, 96U);
  Ids seen = windows_of(again);
  ASSERT_EQ(seen.size(), 7U);
  EXPECT_EQ(Ids(seen.begin(), seen.begin() + 4), Ids(4, -1)) << "left of the window";
  for (size_t i = 4; i < 6; ++i) EXPECT_EQ(seen[i], Inspector::window_of(manager, again.blocks[i]));
  const Sequence* holders[] = {second.get(), &again};
  Inspector::check_integrity(manager, holders);
}

TEST(WindowBlocks, AForkGetsACopyOfTheOneThatItFillsOn) {
  Manager manager(8);
  Sequence first, second;
  for (Sequence* sequence : {&first, &second}) {
    sequence->tokens = counting(0, 40);
    sequence->num_prompt_tokens = 40;
    sequence->shares_prompt = true;
    sequence->sampling.max_tokens = 8;
  }
  ASSERT_TRUE(manager.admit(first));
  manager.cover(first, 40);
  first.num_computed = 40;
  manager.publish(first);
  manager.leave_behind(first);
  ASSERT_TRUE(manager.admit(second));
  EXPECT_EQ(second.num_computed, 39U);
  EXPECT_EQ(manager.take_copies(), (std::vector<BlockCopy>{{first.blocks[2], second.blocks[2]}}));
  EXPECT_EQ(manager.take_window_copies(),
            (std::vector<BlockCopy>{{first.window_blocks[2], second.window_blocks[2]}}));
  EXPECT_EQ(second.window_blocks[1], first.window_blocks[1]);
  const Sequence* holders[] = {&first, &second};
  Inspector::check_integrity(manager, holders);
}

// Half of the layers see 128 tokens.
TEST(WindowBlocks, OfGptOssAt8192TokensTakeALittleOverHalfOfWhatFullLayersWould) {
  for (const uint32_t size : {16U, 64U, 256U}) {
    BlockManager manager(8192 / size, size, true, block_hash,
                         WindowPool::of(128, size, 1, 2048, 8192 / size));
    Sequence sequence;
    sequence.tokens = counting(0, 8192);
    ASSERT_TRUE(manager.admit(sequence));
    for (uint32_t end = 2048; end <= 8192; end += 2048) {
      ASSERT_EQ(manager.cover(sequence, end), end);
      sequence.num_computed = end;
      manager.leave_behind(sequence);
    }
    const auto held = static_cast<double>(manager.pool().num_held() + manager.window_pool().num_held());
    EXPECT_LE(held, 0.55 * 2 * 8192 / size);
  }
}

}  // namespace
}  // namespace maniple
