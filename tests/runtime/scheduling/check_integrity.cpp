// The members of the scheduler that only tests call.
#include <kernels/support/check.hpp>
#include <runtime/scheduling/scheduler.hpp>

namespace maniple {

void BlockManager::check_integrity(std::span<const Sequence* const> sequences) const {
  std::vector<uint32_t> holders(blocks_.size());
  for (const Sequence* sequence : sequences)
    for (const int32_t id : sequence->blocks.ids()) ++holders[static_cast<size_t>(id)];
  size_t published_blocks = 0;
  for (int32_t id = 0; id < static_cast<int32_t>(blocks_.size()); ++id) {
    const Block& block = at(id);
    require(block.holders == holders[static_cast<size_t>(id)], "a block counts other holders than there are");
    require((block.holders > 0) == (block.state == State::held), "a block is in the wrong state");
    require(*block.where == id, "a block is listed under another id");
    if (block.serial == 0) continue;
    ++published_blocks;
    require(published_.at(block.hash) == id, "a published block cannot be found");
    require(block.tokens.size() == block_size_, "a published block is not full");
  }
  require(published_blocks == published_.size(), "a block is found that is not published");
  require(free_.size() + held_.size() + pending_.size() == blocks_.size(), "a block is lost");
}

void Scheduler::check_integrity() const {
  std::vector<const Sequence*> holders;
  for (const auto& [id, sequence] : sequences_) holders.push_back(sequence.get());
  blocks_.check_integrity(holders);
  require(running_.size() + waiting_.size() == sequences_.size(), "a request is lost");
  require(running_.size() + free_seats_.size() == config_.max_num_seqs, "a seat is lost");
}

}  // namespace maniple
