#include <kernels/support/check.hpp>

#include <algorithm>

#include "scheduling_helpers.hpp"

namespace maniple {

void Inspector::check_integrity(const BlockPool& pool, const std::vector<uint32_t>& holders) {
  using State = BlockPool::State;
  for (int32_t id = 0; id < static_cast<int32_t>(pool.size()); ++id) {
    const auto& block = pool.at(id);
    require(block.holders == holders[static_cast<size_t>(id)], "a block counts other holders than there are");
    require((block.holders > 0) == (block.state == State::held), "a block is in the wrong state");
    require(*block.where == id, "a block is listed under another id");
  }
  require(pool.free_.size() + pool.held_.size() + pool.pending_.size() == pool.size(), "a block is lost");
}

// A sequence holds the window blocks of its KV blocks.
void Inspector::check_integrity(const WindowBlocks& windows, std::span<const Sequence* const> sequences) {
  std::vector<uint32_t> holders(windows.pool_.size());
  for (const Sequence* sequence : sequences)
    for (size_t i = sequence->first_window_block; i < sequence->window_blocks.size(); ++i) {
      const int32_t id = sequence->window_blocks[i];
      ++holders[static_cast<size_t>(id)];
      require(windows.of(sequence->blocks[i]) == id, "a sequence has the window block of other tokens");
    }
  check_integrity(windows.pool_, holders);
  for (size_t block = 0; block < windows.of_blocks_.size(); ++block)
    if (const int32_t id = windows.of_blocks_[block]; id >= 0)
      require(windows.blocks_[static_cast<size_t>(id)] == static_cast<int32_t>(block),
              "a window block is that of two blocks");
}

void Inspector::check_integrity(const BlockManager& manager, std::span<const Sequence* const> sequences) {
  std::vector<uint32_t> holders(manager.pool_.size());
  for (const Sequence* sequence : sequences)
    for (const int32_t id : sequence->blocks.ids()) ++holders[static_cast<size_t>(id)];
  check_integrity(manager.pool_, holders);
  check_integrity(manager.windows_, sequences);
  size_t published_blocks = 0, shared_blocks = 0;
  for (int32_t id = 0; id < static_cast<int32_t>(manager.pool_.size()); ++id) {
    const auto& block = manager.at(id);
    if (block.shared) {
      ++shared_blocks;
      const auto [first, last] = manager.shared_.equal_range(block.parent);
      require(std::any_of(first, last, [&](const auto& entry) { return entry.second == id; }) &&
                  !block.tokens.empty(),
              "a block with a part that others share cannot be found");
    }
    if (block.serial == 0) continue;
    ++published_blocks;
    require(manager.published_.at(block.hash) == id, "a published block cannot be found");
    require(block.tokens.size() == manager.block_size_, "a published block is not full");
  }
  require(published_blocks == manager.published_.size(), "a block is found that is not published");
  require(shared_blocks == manager.shared_.size(), "a block is found that nobody shares");
}

void Inspector::check_integrity(const Scheduler& scheduler) {
  std::vector<const Sequence*> holders;
  for (const auto& [id, sequences] : scheduler.sequences_)
    for (const auto& sequence : sequences) holders.push_back(sequence.get());
  check_integrity(scheduler.blocks_, holders);
  require(scheduler.running_.size() + scheduler.waiting_.size() == holders.size(), "a request is lost");
  require(scheduler.running_.size() + scheduler.free_seats_.size() == scheduler.config_.max_num_seqs,
          "a seat is lost");
}

}  // namespace maniple
