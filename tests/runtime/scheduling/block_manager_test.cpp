#include <gtest/gtest.h>

#include <algorithm>
#include <kernels/support/check.hpp>
#include <random>
#include <runtime/scheduling/block_manager.hpp>

#include "scheduling_helpers.hpp"

namespace maniple {
namespace {

using Ids = std::vector<int32_t>;

Sequence sequence_of(Ids tokens) {
  Sequence sequence;
  sequence.num_prompt_tokens = static_cast<uint32_t>(tokens.size());
  sequence.tokens = std::move(tokens);
  return sequence;
}

void compute(BlockManager& manager, Sequence& sequence) {
  sequence.num_computed = sequence.num_tokens();
  manager.publish(sequence);
}

// Admitted and computed, as in one step.
Sequence served(BlockManager& manager, Ids tokens) {
  Sequence sequence = sequence_of(std::move(tokens));
  EXPECT_TRUE(manager.admit(sequence));
  compute(manager, sequence);
  return sequence;
}

Ids blocks_of(const Sequence& sequence) {
  return {sequence.blocks.ids().begin(), sequence.blocks.ids().end()};
}

// The known answers come from an independent implementation of nano-vLLM's definition.
TEST(BlockHash, EqualsTheKnownAnswers) {
  const Ids zeros(256, 0);
  EXPECT_EQ(block_hash({}, counting(0, 256)), 0x486adfcc62236efeU);
  EXPECT_EQ(block_hash({}, zeros), 0x09223f92a4d83e02U);
  EXPECT_EQ(block_hash({}, counting(256, 256)), 0x439ebfab3f4a7162U);
  EXPECT_EQ(block_hash(block_hash({}, counting(0, 256)), counting(256, 256)), 0x13bd65fa35ab695dU);
  EXPECT_EQ(block_hash(block_hash({}, zeros), zeros), 0x203dbad0034cb2f7U);
  EXPECT_EQ(block_hash(block_hash(block_hash({}, zeros), zeros), zeros), 0x246aa0f44514bac6U);
  EXPECT_EQ(block_hash({}, counting(1, 4)), 0x73f859a04f669e6dU);
}

TEST(BlockHash, OfTheSameTokensAfterDifferentPrefixesDiffers) {
  const Ids same = counting(500, 16);
  EXPECT_NE(block_hash(block_hash({}, counting(0, 16)), same),
            block_hash(block_hash({}, counting(16, 16)), same));
  EXPECT_NE(block_hash({}, same), block_hash(0, same));
}

// vLLM's test_prefill, in its steps; its block numbers are ours plus one (its block 0 is the null block).
TEST(BlockManager, SharesAPrefixWhileHeldAndAfterAndEvictsInTheStatedOrder) {
  BlockManager manager(10, 16, true);
  const Ids common = counting(0, 48);
  Sequence first = served(manager, joined(common, counting(1000, 7)));
  EXPECT_EQ(blocks_of(first), (Ids{0, 1, 2, 3}));
  for (const int32_t block : {0, 1, 2}) EXPECT_TRUE(Inspector::published(manager, block));
  EXPECT_FALSE(Inspector::published(manager, 3));
  for (const int32_t block : {0, 1, 2, 3}) EXPECT_EQ(Inspector::holders(manager, block), 1U);

  Sequence second = sequence_of(joined(common, counting(2000, 5)));
  EXPECT_EQ(manager.cached_length(second), 48U);
  ASSERT_TRUE(manager.admit(second));
  EXPECT_EQ(second.num_computed, 48U);
  EXPECT_EQ(blocks_of(second), (Ids{0, 1, 2, 4}));
  for (const int32_t block : {0, 1, 2}) EXPECT_EQ(Inspector::holders(manager, block), 2U);
  EXPECT_EQ(manager.pool().num_free(), 5U);

  manager.release(first, 0);
  manager.release(second, 0);
  EXPECT_EQ(Inspector::free_order(manager), (Ids{4, 3, 5, 6, 7, 8, 9, 2, 1, 0}));

  Sequence third = sequence_of(joined(common, counting(3000, 3)));
  ASSERT_TRUE(manager.admit(third));
  EXPECT_EQ(blocks_of(third), (Ids{0, 1, 2, 4}));
  EXPECT_EQ(manager.pool().num_free(), 6U);
  manager.release(third, 0);
  EXPECT_EQ(Inspector::free_order(manager), (Ids{4, 3, 5, 6, 7, 8, 9, 2, 1, 0}));

  Sequence large = sequence_of(counting(4000, 160));
  ASSERT_TRUE(manager.admit(large));
  EXPECT_EQ(blocks_of(large), (Ids{4, 3, 5, 6, 7, 8, 9, 2, 1, 0}));
  EXPECT_EQ(manager.cached_length(third), 0U);
}

// vLLM's test_evict.
TEST(BlockManager, ReusesTailsBeforeHeadsAndWhatIsNoPrefixFirst) {
  BlockManager manager(10, 16, true);
  Sequence first = served(manager, counting(0, 5 * 16 + 7));
  Sequence second = served(manager, counting(1000, 3 * 16));
  EXPECT_EQ(Inspector::free_order(manager), (Ids{9}));
  manager.release(first, 0);
  manager.release(second, 0);
  EXPECT_EQ(Inspector::free_order(manager), (Ids{5, 9, 4, 3, 2, 1, 0, 8, 7, 6}));
  Sequence third = sequence_of(counting(0, 2 * 16 + 3));
  ASSERT_TRUE(manager.admit(third));
  EXPECT_EQ(third.num_computed, 32U);
  EXPECT_EQ(manager.pool().num_free(), 7U);
}

TEST(BlockManager, AReusedBlockIsNoLongerPublished) {
  BlockManager manager(1, 16, true);
  Sequence first = served(manager, counting(0, 16));
  EXPECT_TRUE(Inspector::published(manager, 0));
  manager.release(first, 0);
  Sequence second = sequence_of(counting(50, 15));
  ASSERT_TRUE(manager.admit(second));
  EXPECT_FALSE(Inspector::published(manager, 0));
  EXPECT_EQ(manager.cached_length(sequence_of(counting(0, 17))), 0U);
}

// vLLM's test_computed_blocks_not_evicted.
TEST(BlockManager, ABlockThatIsHitIsNotEvictedByTheSameRequest) {
  BlockManager manager(2, 16, true);
  Sequence first = served(manager, counting(0, 16));
  Sequence second = served(manager, counting(16, 16));
  manager.release(first, 0);
  manager.release(second, 0);
  Sequence third = sequence_of(counting(0, 32));
  ASSERT_TRUE(manager.admit(third));
  EXPECT_EQ(third.num_computed, 16U);
  EXPECT_EQ(blocks_of(third), (Ids{0, 1}));
}

TEST(BlockManager, WithoutPrefixCacheNothingIsSharedAndALackOfBlocksIsRefused) {
  BlockManager manager(4, 16, false);
  Sequence first = served(manager, counting(0, 32));
  Sequence second = sequence_of(counting(0, 32));
  EXPECT_EQ(manager.cached_length(second), 0U);
  ASSERT_TRUE(manager.admit(second));
  EXPECT_EQ(second.num_computed, 0U);
  EXPECT_EQ(blocks_of(second), (Ids{2, 3}));
  Sequence third = sequence_of(counting(0, 1));
  EXPECT_FALSE(manager.admit(third));
  second.tokens.push_back(0);
  EXPECT_FALSE(manager.grow(second));
}

TEST(BlockManager, ARefusedAdmissionChangesNothingAlthoughPartIsCached) {
  BlockManager manager(6, 16, true);
  Sequence first = served(manager, counting(0, 48));
  Sequence other = served(manager, counting(1000, 32));
  manager.release(first, 0);
  const Ids order = Inspector::free_order(manager);
  Sequence large = sequence_of(counting(0, 80));  // three blocks cached among four free, two more to fill
  EXPECT_EQ(manager.cached_length(large), 48U);
  EXPECT_FALSE(manager.admit(large));
  EXPECT_EQ(Inspector::free_order(manager), order);
  EXPECT_EQ(large.blocks.size(), 0U);
  EXPECT_EQ(large.num_computed, 0U);
  const Sequence* holders[] = {&other};
  Inspector::check_integrity(manager, holders);
}

TEST(BlockManager, APromptOfWholeBlocksThatAreAllCachedComputesItsLastBlockAgain) {
  for (const size_t blocks : {1U, 2U, 3U}) {
    BlockManager manager(8, 256, true);
    Sequence first = served(manager, counting(0, blocks * 256));
    Sequence again = sequence_of(counting(0, blocks * 256));
    ASSERT_TRUE(manager.admit(again));
    EXPECT_EQ(again.num_computed, (blocks - 1) * 256);
    Sequence longer = sequence_of(counting(0, blocks * 256 + 1));
    ASSERT_TRUE(manager.admit(longer));
    EXPECT_EQ(longer.num_computed, blocks * 256);
  }
}

TEST(BlockManager, GrowsByABlockExactlyBehindEachBoundary) {
  BlockManager manager(8, 256, true);
  Sequence sequence = sequence_of(counting(0, 255));
  ASSERT_TRUE(manager.admit(sequence));
  for (const size_t length : {255U, 256U, 257U, 511U, 512U, 513U}) {
    sequence.tokens.resize(length);
    ASSERT_TRUE(manager.grow(sequence));
    EXPECT_EQ(sequence.blocks.size(), (length + 255) / 256) << length;
  }
}

TEST(BlockManager, ABlockIsFoundOnlyAfterItWasComputed) {
  BlockManager manager(8, 16, true);
  Sequence first = sequence_of(counting(0, 40));
  Sequence second = sequence_of(counting(0, 40));
  ASSERT_TRUE(manager.admit(first));
  ASSERT_TRUE(manager.admit(second));
  EXPECT_EQ(second.num_computed, 0U);
  first.num_computed = 20;
  manager.publish(first);
  EXPECT_EQ(manager.cached_length(second), 16U);
  compute(manager, first);
  EXPECT_EQ(manager.cached_length(second), 32U);
}

// Two sequences computed the same content at once. The first copy is the published one, and the other is
// reused first once freed. Blocks that follow the other copy are still found after the first one.
TEST(BlockManager, ASecondCopyOfABlockExtendsTheChainOfTheFirst) {
  BlockManager manager(8, 16, true);
  Sequence first = sequence_of(counting(0, 20));
  Sequence second = sequence_of(counting(0, 40));
  ASSERT_TRUE(manager.admit(first));
  ASSERT_TRUE(manager.admit(second));
  compute(manager, first);
  compute(manager, second);
  EXPECT_TRUE(Inspector::published(manager, first.blocks[0]));
  EXPECT_FALSE(Inspector::published(manager, second.blocks[0]));
  Sequence third = sequence_of(counting(0, 40));
  ASSERT_TRUE(manager.admit(third));
  EXPECT_EQ(third.num_computed, 32U);
  EXPECT_EQ(third.blocks[0], first.blocks[0]);
  EXPECT_EQ(third.blocks[1], second.blocks[1]);
}

uint64_t constant_hash(std::optional<uint64_t>, std::span<const int32_t>) { return 7; }
uint64_t prefix_blind_hash(std::optional<uint64_t>, std::span<const int32_t> tokens) {
  return block_hash({}, tokens);
}

TEST(BlockManager, AHashCollisionOfOtherTokensIsNoHit) {
  BlockManager manager(8, 16, true, constant_hash);
  Sequence first = served(manager, counting(0, 16));
  EXPECT_EQ(manager.cached_length(sequence_of(counting(0, 17))), 16U);
  EXPECT_EQ(manager.cached_length(sequence_of(counting(100, 17))), 0U);
  Sequence second = served(manager, counting(100, 16));  // the last one published is found
  EXPECT_EQ(manager.cached_length(sequence_of(counting(100, 17))), 16U);
  EXPECT_EQ(manager.cached_length(sequence_of(counting(0, 17))), 0U);
  const Sequence* holders[] = {&first, &second};
  Inspector::check_integrity(manager, holders);
}

TEST(BlockManager, AHashCollisionOfTheSameTokensBehindAnotherPrefixIsNoHit) {
  BlockManager manager(8, 16, true, prefix_blind_hash);
  const Ids head = counting(0, 16), other_head = counting(100, 16), tail = counting(200, 16);
  Sequence first = served(manager, joined(head, tail));
  Sequence second = served(manager, other_head);
  EXPECT_EQ(manager.cached_length(sequence_of(joined(joined(head, tail), {1}))), 32U);
  EXPECT_EQ(manager.cached_length(sequence_of(joined(joined(other_head, tail), {1}))), 16U);
}

TEST(BlockManager, ReleasedBlocksAreReadAtOnceAndWrittenOnlyAfterThePlansInFlight) {
  BlockManager manager(3, 16, true);
  Sequence first = served(manager, counting(0, 40));
  manager.release(first, 5);
  EXPECT_EQ(manager.pool().num_free(), 0U);
  EXPECT_EQ(manager.pool().num_pending(), 3U);
  Sequence other = sequence_of(counting(1000, 16));
  EXPECT_FALSE(manager.admit(other));
  Sequence same = sequence_of(counting(0, 17));  // one block to read, one to write
  EXPECT_FALSE(manager.admit(same));
  manager.answered(4);
  EXPECT_EQ(manager.pool().num_free(), 0U);
  manager.answered(5);
  EXPECT_EQ(manager.pool().num_free(), 3U);
  EXPECT_TRUE(manager.admit(same));
}

TEST(BlockManager, AQuarantinedPrefixThatIsHitLeavesTheQuarantine) {
  BlockManager manager(4, 16, true);
  Sequence first = served(manager, counting(0, 32));
  manager.release(first, 5);
  Sequence again = sequence_of(counting(0, 33));
  ASSERT_TRUE(manager.admit(again));
  EXPECT_EQ(blocks_of(again), (Ids{0, 1, 2}));
  EXPECT_EQ(manager.pool().num_pending(), 0U);
  manager.answered(5);
  EXPECT_EQ(Inspector::free_order(manager), (Ids{3}));
}

TEST(BlockManager, StaysBalancedOver10000RandomOperations) {
  for (const auto hash : {block_hash, prefix_blind_hash, constant_hash}) {
    std::mt19937 random(7);
    BlockManager manager(40, 4, true, hash);
    std::vector<std::unique_ptr<Sequence>> live;
    uint64_t step = 0;
    for (int n = 0; n < 10000; ++n) {
      const size_t chosen = live.empty() ? 0 : random() % live.size();
      switch (random() % 5) {
        case 0: {
          auto fresh = std::make_unique<Sequence>(
              sequence_of(counting(static_cast<int32_t>(random() % 3), 1 + random() % 30)));
          const size_t cached = manager.cached_length(*fresh);
          ASSERT_LT(cached, fresh->num_tokens());
          if (!manager.admit(*fresh)) break;
          ASSERT_EQ(fresh->num_computed, cached);
          live.push_back(std::move(fresh));
          break;
        }
        case 1:
          if (live.empty()) break;
          if (live[chosen]->num_computed == live[chosen]->num_tokens())
            live[chosen]->tokens.push_back(static_cast<int32_t>(random() % 2));
          manager.grow(*live[chosen]);
          break;
        case 2:
          if (live.empty() || live[chosen]->blocks.size() * 4 < live[chosen]->num_tokens()) break;
          compute(manager, *live[chosen]);
          break;
        case 3:
          if (live.empty()) break;
          manager.release(*live[chosen], step + random() % 2);
          live.erase(live.begin() + static_cast<ptrdiff_t>(chosen));
          break;
        default:
          manager.answered(++step);
      }
      std::vector<const Sequence*> holders;
      for (const auto& sequence : live) holders.push_back(sequence.get());
      ASSERT_NO_THROW(Inspector::check_integrity(manager, holders)) << "operation " << n;
    }
    for (auto& sequence : live) manager.release(*sequence, 0);
    manager.answered(step + 1);
    EXPECT_EQ(manager.pool().num_free(), 40U);
  }
}

}  // namespace
}  // namespace maniple
