#include <kernels/support/check.hpp>

#include <algorithm>

#include "scheduling_helpers.hpp"

namespace maniple {

void Inspector::check_integrity(const BlockManager& manager, std::span<const Sequence* const> sequences) {
  using State = BlockManager::State;
  std::vector<uint32_t> holders(manager.num_blocks());
  for (const Sequence* sequence : sequences)
    for (const int32_t id : sequence->blocks.ids()) ++holders[static_cast<size_t>(id)];
  size_t published_blocks = 0, shared_blocks = 0;
  for (int32_t id = 0; id < static_cast<int32_t>(manager.num_blocks()); ++id) {
    const auto& block = manager.at(id);
    require(block.holders == holders[static_cast<size_t>(id)], "a block counts other holders than there are");
    require((block.holders > 0) == (block.state == State::held), "a block is in the wrong state");
    require(*block.where == id, "a block is listed under another id");
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
  require(manager.free_.size() + manager.held_.size() + manager.pending_.size() == manager.num_blocks(),
          "a block is lost");
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
